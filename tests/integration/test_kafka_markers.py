"""The marker of a foreign transaction at the end of a partition has an offset, but is not a record."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from eventstore.log import FLEET, EventLog, Partition
from eventstore.recovery.attestation import records_before
from tests.contract.engine import KEY
from tests.integration.test_kafka_poison import foreign
from tests.support.kafka import KafkaUnderTest
from tests.support.replicas import running, toy_replica

pytestmark = pytest.mark.kafka

FLEET_0 = Partition(FLEET, 0)
PATIENCE_S = 90.0


async def send_in_a_transaction(producer: AIOKafkaProducer, topic: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, value=b"foreign")


async def offsets(log: EventLog) -> list[int]:
    return [record.offset async for record in records_before(log, FLEET_0, await log.end(FLEET_0))]


async def test_markers_at_the_end_of_a_partition_block_no_reader(kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    topic = f"{kafka_log.prefix}.fleet"
    assert await log.end(FLEET_0) == 0
    async with running(toy_replica(log, topics=(FLEET,))):
        pass
    assert await log.end(FLEET_0) == 1
    async with foreign(kafka_log, transactional_id=f"{kafka_log.prefix}-foreign") as producer:
        await send_in_a_transaction(producer, topic)
        assert await log.end(FLEET_0) == 2
        async with asyncio.timeout(PATIENCE_S):
            async with running(again := toy_replica(log, topics=(FLEET,))):
                assert again.position(FLEET_0) == 2
            assert await offsets(log) == [0, 1]
        for _ in range(5):
            await send_in_a_transaction(producer, topic)
        assert await log.end(FLEET_0) == 12
        assert await log.position_at(FLEET_0, 1 << 42) == 12
    await log.append(FLEET_0, KEY, b"ours")
    assert await log.end(FLEET_0) == 14
    async with asyncio.timeout(PATIENCE_S):
        assert await offsets(log) == [0, 1, 3, 5, 7, 9, 11, 13]
