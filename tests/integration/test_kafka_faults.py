"""Three real brokers lose their leaders, freeze and restart under load: nothing acknowledged is lost, order holds."""

from __future__ import annotations

import asyncio

import pytest

from deploy.brokers import Brokers
from eventstore.log import CLIQUES, FLEET, ZONES, Partition
from tests.support.kafka import KafkaUnderTest
from tests.support.kafka_load import load

pytestmark = pytest.mark.kafka

PARTITIONS = (Partition(ZONES, 0), Partition(ZONES, 1), Partition(CLIQUES, 0), Partition(FLEET, 0))


@pytest.mark.parametrize("partition", [PARTITIONS[0], PARTITIONS[3]], ids=str)
async def test_the_leader_is_killed(kafka_brokers: Brokers, kafka_log: KafkaUnderTest, partition: Partition) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        kafka_brokers.kill(await kafka_log.operator.leader(partition))
        await running.more(20)
        await kafka_brokers.heal()
        await running.more(20)


async def test_the_leader_freezes_for_seconds(kafka_brokers: Brokers, kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        leader = await kafka_log.operator.leader(PARTITIONS[3])
        kafka_brokers.pause(leader)
        await running.more(20)  # another leads by now
        kafka_brokers.resume(leader)
        await running.more(20)


async def test_a_short_freeze_that_nobody_is_replaced_for(kafka_brokers: Brokers, kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        leader = await kafka_log.operator.leader(PARTITIONS[3])
        for _ in range(3):
            kafka_brokers.pause(leader)
            await asyncio.sleep(0.5)
            kafka_brokers.resume(leader)
            await running.more(5)


async def test_all_brokers_restart_one_after_another(kafka_brokers: Brokers, kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        for broker in kafka_brokers.ids:
            await kafka_brokers.restart(broker)
            await running.more(5)


async def test_all_brokers_are_killed_at_once(kafka_brokers: Brokers, kafka_log: KafkaUnderTest) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        for broker in kafka_brokers.ids:
            kafka_brokers.kill(broker)
        await kafka_brokers.heal()
        await running.more(20)
