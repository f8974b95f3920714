"""Foreign records in a real topic: every reader reads any record of any Kafka client in the same way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from eventstore.log import FLEET, EventLog, Partition, Record
from tests.contract.engine import KEY
from tests.support.kafka import KafkaUnderTest

pytestmark = pytest.mark.kafka

FLEET_0 = Partition(FLEET, 0)
_CRC_AT, _CRC_OF = 17, 21
"""Offsets in a batch (v2) of its checksum, and of the first byte that the checksum covers."""


@asynccontextmanager
async def foreign(log: KafkaUnderTest, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    """A producer with settings that the plane does not use."""
    async with AIOKafkaProducer(bootstrap_servers=log.bootstrap, **settings) as producer:
        yield producer


async def read_all(log: EventLog) -> list[Record]:
    """All present records."""
    found: list[Record] = []
    end = await log.end(FLEET_0)
    async with aclosing(log.read({FLEET_0: 0})) as batches:
        async for _, records in batches:
            found += records
            if found[-1].offset >= end - 1:
                return found
    raise AssertionError("the reader ended by itself")


async def test_absent_keys_values_and_header_values_are_read_as_empty(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    topic = f"{kafka_log.prefix}.fleet"
    async with foreign(kafka_log, compression_type="gzip") as producer:
        await producer.send_and_wait(topic, value=b"v")
        await producer.send_and_wait(topic, key=b"k")
        await producer.send_and_wait(topic, key=b"k", value=b"v", headers=[("a", None), ("", b"x")])
    await log.append(FLEET_0, KEY, b"ours")
    found = [(record.key, record.value, record.headers) for record in await read_all(log)]
    assert found == [
        (b"", b"v", ()),
        (b"k", b"", ()),
        (b"k", b"v", (("a", b""), ("", b"x"))),
        (KEY, b"ours", ()),
    ]


async def test_a_header_name_that_is_not_text_does_not_end_a_reader(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    await log.append(FLEET_0, KEY, b"before")
    async with foreign(kafka_log) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=KEY, value=b"poison", headers=[("QQQQ", b"x")])
        packed = bytearray(bytes(batch._build()).replace(b"QQQQ", b"\xff\xfe\xff\xfe"))
        packed[_CRC_AT:_CRC_OF] = calc_crc32c(bytes(packed[_CRC_OF:])).to_bytes(4, "big")
        batch._buffer = packed
        await (await producer.send_batch(batch, f"{kafka_log.prefix}.fleet", partition=0))
    await log.append(FLEET_0, KEY, b"after")
    assert [record.value for record in await read_all(log)] == [b"before", b"poison", b"after"]
