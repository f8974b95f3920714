"""The topics of a log are created with the required settings, refused with other settings, and checked while open."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from contextlib import aclosing

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from deploy.composition.topics import TOPICS
from eventstore.errors import LogMismatch, LogMissing, LogUnavailable
from eventstore.kafka.log import KafkaLog
from eventstore.log import FLEET, FLEET_0, INSTALLS, MAX_RECORD_BYTES, REPLICAS, ZONES, Partition
from tests.contract.engine import KEY, put, read_all
from tests.support.kafka import KafkaUnderTest

pytestmark = pytest.mark.kafka

ZONES_0 = Partition(ZONES, 0)


@pytest.mark.parametrize(
    ("topic", "setting", "value"),
    [
        (ZONES, "retention.ms", "86400000"),
        (ZONES, "retention.bytes", "1000000"),
        (FLEET, "cleanup.policy", "compact"),
        (FLEET, "min.insync.replicas", "1"),
        (ZONES, "unclean.leader.election.enable", "true"),
        (ZONES, "message.timestamp.type", "CreateTime"),
        (ZONES, "compression.type", "producer"),
        (INSTALLS, "retention.ms", "60000"),
        (FLEET, "max.message.bytes", str(MAX_RECORD_BYTES // 2)),
    ],
)
async def test_a_wrong_setting_is_refused_by_name(
    kafka_log: KafkaUnderTest, topic: str, setting: str, value: str
) -> None:
    await kafka_log.operator.create(kafka_log.partition_count, {topic: {setting: value}})
    with pytest.raises(LogMismatch, match=rf"topic {kafka_log.prefix}.{topic}: {setting} is '{value}' and must be"):
        await kafka_log.open_kafka()


async def test_settings_may_be_stricter_than_required(kafka_log: KafkaUnderTest) -> None:
    stricter = {INSTALLS: {"retention.ms": "-1"}, REPLICAS: {"retention.ms": "7200000", "max.message.bytes": "8000000"}}
    await kafka_log.operator.create(kafka_log.partition_count, stricter)
    await kafka_log.open_kafka()


async def test_too_few_copies_are_refused(kafka_log: KafkaUnderTest) -> None:
    await kafka_log.operator.create(kafka_log.partition_count, copies=1)
    with pytest.raises(LogMismatch, match=r"\.zones: replication factor 1 must be at least"):
        await kafka_log.open_kafka()


async def test_missing_topics_are_named_if_they_must_not_be_created(kafka_log: KafkaUnderTest) -> None:
    with pytest.raises(LogMissing, match=rf"{kafka_log.prefix}\.zones.*{kafka_log.prefix}\.replicas is missing"):
        await kafka_log.open_kafka(create=False)


async def test_a_log_keeps_its_partition_count_unless_asked_for_another(kafka_log: KafkaUnderTest) -> None:
    await kafka_log.open_kafka(5)
    async with KafkaLog.open(TOPICS, kafka_log.bootstrap, topic_prefix=kafka_log.prefix, rng=random.Random(1)) as log:
        assert log.partition_count == 5


async def test_several_processes_may_open_a_new_log_at_once(kafka_log: KafkaUnderTest) -> None:
    logs = await asyncio.gather(*(kafka_log.open_kafka() for _ in range(5)))
    await put(logs[0], ZONES_0, b"from the first")
    assert [record.value for record in await read_all(logs[4], ZONES_0)] == [b"from the first"]


async def test_a_recreated_log_ends_a_reader_that_has_read_no_record(kafka_log: KafkaUnderTest) -> None:
    """A reader at the beginning of an empty partition can detect it by the id of the topic only."""
    log = await kafka_log.open_kafka()
    async with aclosing(log.read({FLEET_0: 0})) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.5)
        await kafka_log.recreate()
        async with asyncio.timeout(kafka_log.patience_s):
            with pytest.raises(LogMismatch, match=rf"{kafka_log.prefix}\..* was deleted"):
                await waiting
    with pytest.raises(LogMismatch):
        await log.append(FLEET_0, KEY, b"value")


async def test_a_deleted_topic_ends_the_log(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with aclosing(log.read({FLEET_0: 0})) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.5)
        await kafka_log.operator.delete()
        async with asyncio.timeout(kafka_log.patience_s):
            with pytest.raises(LogMismatch, match=rf"topic {kafka_log.prefix}\.\w+ was deleted$"):
                await waiting


async def test_added_partitions_end_the_log_and_keep_it_from_opening(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with aclosing(log.read({ZONES_0: 0})) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.5)
        await kafka_log.operator.add_partitions(ZONES, kafka_log.partition_count + 1)
        async with asyncio.timeout(kafka_log.patience_s):
            with pytest.raises(LogMismatch, match=r"\.zones has 5 partitions and must have 4"):
                await waiting
    with pytest.raises(LogMismatch, match=r"\.zones has 5 partitions and must have 4"):
        await kafka_log.open_kafka()


async def test_foreign_records_in_the_topics_are_read_unchanged(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    topic = kafka_log.operator.topic(ZONES)
    async with AIOKafkaProducer(bootstrap_servers=kafka_log.bootstrap, compression_type="gzip", acks="all") as producer:
        await producer.send_and_wait(topic, b"no key", partition=0, headers=[("trace", b"1")])
        await producer.send_and_wait(topic, None, b"no value", partition=0)
    read = [(record.key, record.value, record.headers) for record in await read_all(log, ZONES_0)]
    assert read == [(b"", b"no key", (("trace", b"1"),)), (b"no value", b"", ())]


async def test_a_compression_bomb_is_rejected(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with AIOKafkaProducer(
        bootstrap_servers=kafka_log.bootstrap,
        compression_type="gzip",
        max_request_size=64 << 20,
        max_batch_size=64 << 20,
        acks="all",
    ) as producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait(kafka_log.operator.topic(ZONES), bytes(32 << 20), partition=0)
    assert await log.end(ZONES_0) == 0


async def test_a_missing_cluster_is_unavailable() -> None:
    with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:1"):
        async with KafkaLog.open(TOPICS, "127.0.0.1:1", rng=random.Random(1)):
            raise AssertionError("a log was opened without a cluster")


def test_a_process_without_assertions_does_not_start() -> None:
    program = """
import asyncio, random
from deploy.composition.topics import TOPICS
from eventstore.kafka.log import KafkaLog
async def main():
    async with KafkaLog.open(TOPICS, "127.0.0.1:1", rng=random.Random(1)): pass
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False)
    assert "FatalError: python: -O removes assertions that the Kafka client relies on" in ended.stderr
