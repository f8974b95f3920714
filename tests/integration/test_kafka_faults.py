"""Leaders of three real brokers are killed, suspended and restarted under load.

No acknowledged record is lost, and the order stays.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable
from eventstore.kafka import topics
from eventstore.kafka.log import KafkaLog
from eventstore.kafka.topics import count_brokers
from eventstore.log import CLIQUES, FLEET, ZONES, Partition, Record
from tests.contract.engine import KEY, first_values, numbered, put, read_all
from tests.support.eventually import until
from tests.support.kafka import KafkaUnderTest
from tests.support.struck_brokers import StruckBrokers

pytestmark = pytest.mark.kafka

PACE_S = 0.02
PATIENCE_S = 120.0


class Load:
    """One sequential appender per partition, which repeats appends with an unknown outcome, and one reader of all
    partitions.
    """

    def __init__(self, log: KafkaLog, partitions: Sequence[Partition]) -> None:
        self._log = log
        self._stopping = asyncio.Event()
        self.acknowledged: dict[Partition, list[bytes]] = {partition: [] for partition in partitions}
        self.unknown = 0
        self.read: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        self._progress = asyncio.Condition()

    async def more(self, count: int) -> None:
        """Wait until so many more records were acknowledged and read back in every partition."""
        wanted = {partition: len(values) + count for partition, values in self.acknowledged.items()}
        async with asyncio.timeout(PATIENCE_S), self._progress:
            await self._progress.wait_for(
                lambda: all(
                    len(self.acknowledged[partition]) >= length and len(self.read[partition]) >= length
                    for partition, length in wanted.items()
                )
            )

    async def check(self) -> None:
        """Check that each acknowledged record is present, in order, and that the reader saw the same records as a new
        reader.
        """
        for partition, values in self.acknowledged.items():
            stands = await read_all(self._log, partition)
            assert first_values(stands) == values
            assert self.read[partition] == stands[: len(self.read[partition])]

    async def append(self, partition: Partition) -> None:
        while not self._stopping.is_set():
            value = f"{partition} {len(self.acknowledged[partition])}".encode()
            while not await self._is_acknowledged(partition, value):
                self.unknown += 1
            self.acknowledged[partition].append(value)
            async with self._progress:
                self._progress.notify_all()
            await asyncio.sleep(PACE_S)

    async def _is_acknowledged(self, partition: Partition, value: bytes) -> bool:
        try:
            await self._log.append(partition, KEY, value)
        except AppendUnknown:
            return False
        return True

    async def follow(self) -> None:
        async with aclosing(self._log.read(dict.fromkeys(self.read, 0))) as batches:
            async for partition, records in batches:
                self.read[partition] += records
                async with self._progress:
                    self._progress.notify_all()

    def stop_appending(self) -> None:
        self._stopping.set()


@asynccontextmanager
async def load(log: KafkaLog, partitions: Sequence[Partition]) -> AsyncIterator[Load]:
    """Put the log under load. After the body, the appenders finish and their records are checked."""
    running = Load(log, partitions)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(running.follow())
        async with asyncio.TaskGroup() as appending:
            for partition in partitions:
                appending.create_task(running.append(partition))
            await running.more(5)
            yield running
            await running.more(5)
            running.stop_appending()
        following.cancel()
    await running.check()


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


async def test_a_new_log_waits_for_all_brokers(
    kafka_log: KafkaUnderTest, kafka_brokers: StruckBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log created on a part of the brokers would have too few copies for ever, and be refused later."""
    for limit in ("_BROKERS_S", "_PREPARE_S"):  # a busy machine takes longer to start a broker
        monkeypatch.setattr(topics, limit, 200.0)
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
    await until(lambda: asyncio.all_tasks() == others)
