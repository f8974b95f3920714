"""Leaders of three real brokers are killed, suspended and restarted under load.

No acknowledged record is lost, and the order stays.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable
from eventstore.kafka.topics import count_brokers
from eventstore.log import CLIQUES, FLEET, ZONES, Partition
from tests.contract.engine import KEY, numbered, put
from tests.support.kafka import KafkaUnderTest
from tests.support.kafka_load import load
from tests.support.struck_brokers import StruckBrokers

pytestmark = pytest.mark.kafka

PARTITIONS = (Partition(ZONES, 0), Partition(ZONES, 1), Partition(CLIQUES, 0), Partition(FLEET, 0))


@pytest.mark.parametrize("partition", [PARTITIONS[0], PARTITIONS[3]], ids=str)
async def test_the_leader_is_killed(
    kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers, partition: Partition
) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        kafka_brokers.kill(await kafka_log.operator.leader(partition))
        await running.more(20)
        await kafka_brokers.heal()
        await running.more(20)


async def test_the_leader_freezes_for_seconds(kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        leader = await kafka_log.operator.leader(PARTITIONS[3])
        kafka_brokers.pause(leader)
        await running.more(20)  # another broker leads by now
        kafka_brokers.resume(leader)
        await running.more(20)


async def test_a_short_freeze_without_a_new_leader(kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        leader = await kafka_log.operator.leader(PARTITIONS[3])
        for _ in range(3):
            kafka_brokers.pause(leader)
            await asyncio.sleep(0.2)
            kafka_brokers.resume(leader)
            await running.more(5)


async def test_all_brokers_restart_one_after_another(kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        for broker in kafka_brokers.ids:
            await kafka_brokers.restart(broker)
            await running.more(5)


async def test_all_brokers_are_killed_at_once(kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers) -> None:
    log = await kafka_log.open_kafka()
    async with load(log, PARTITIONS) as running:
        for broker in kafka_brokers.ids:
            kafka_brokers.kill(broker)
        await kafka_brokers.heal()
        await running.more(20)


@pytest.mark.parametrize("refilled", [False, True], ids=["shorter", "refilled"])
async def test_a_reader_detects_that_all_disks_lost_the_end(
    kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers, refilled: bool
) -> None:
    """Kafka does not sync, so a power failure of the whole cluster may lose acknowledged records."""
    log = await kafka_log.open_kafka()
    fleet = Partition(FLEET, 0)
    await put(log, fleet, *numbered("kept", 10))
    sizes = {path: path.stat().st_size for path in segments(kafka_brokers, kafka_log.operator.topic(FLEET))}
    assert len(sizes) == 3
    await put(log, fleet, *numbered("lost", 10))
    async with aclosing(log.read({fleet: 0})) as batches:
        read = 0
        while read < 20:
            read += len((await anext(batches))[1])
        for broker in kafka_brokers.ids:
            kafka_brokers.kill(broker)
        for path, size in sizes.items():
            os.truncate(path, size)
        await kafka_brokers.heal()
        if refilled:
            await put(log, fleet, *numbered("new", 15))
        async with asyncio.timeout(kafka_log.patience_s):
            with pytest.raises(LogMismatch, match="fleet/0"):
                await anext(batches)


async def test_a_new_log_waits_for_all_brokers(kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers) -> None:
    """A log created on a part of the brokers would have too few copies for ever, and be refused later."""
    await lose_one(kafka_brokers)
    opening = asyncio.ensure_future(kafka_log.open_kafka())
    await asyncio.sleep(2)
    await kafka_brokers.heal()
    await opening
    copies = {topic.name: topic.replicas for topic in (await kafka_log.described()).values()}
    assert len(copies) == len(TOPICS.names) and set(copies.values()) == {3}


async def test_no_topic_is_created_while_a_named_broker_is_missing(
    kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers
) -> None:
    await lose_one(kafka_brokers)
    with pytest.raises(LogUnavailable, match="2 of 3 named brokers are up"):
        await kafka_log.open_kafka()
    assert not await kafka_log.described()


async def lose_one(brokers: StruckBrokers) -> None:
    """Kill one of three brokers. Returns when the cluster knows that it is gone."""
    brokers.kill(3)
    while await count_brokers(brokers.bootstrap, random.Random(1)) != 2:
        await asyncio.sleep(0.1)


def segments(brokers: StruckBrokers, topic: str) -> list[Path]:
    """The files of the first partition of a topic on all brokers."""
    return list(brokers.data.glob(f"broker-*/logs/{topic}-0/*.log"))


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_log_closes_when_no_broker_responds(
    kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers, how: str
) -> None:
    others = asyncio.all_tasks()
    log = await kafka_log.open_kafka()
    batches = log.read(dict.fromkeys(PARTITIONS, 0))
    reading = asyncio.ensure_future(anext(batches))
    for broker in kafka_brokers.ids:
        (kafka_brokers.kill if how == "killed" else kafka_brokers.pause)(broker)
    appends = [asyncio.ensure_future(log.append(partition, KEY, b"value", timeout_s=60)) for partition in PARTITIONS]
    await asyncio.sleep(1)
    await log.close()
    for error in await asyncio.gather(*appends, reading, return_exceptions=True):
        assert isinstance(error, AppendUnknown | LogUnavailable)
    for _ in range(100):
        if not asyncio.all_tasks() - others:
            break
        await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == others
