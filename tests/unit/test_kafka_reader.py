"""A Kafka reader replaces broken and silent consumers, and proves each time that the log is still the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from deploy.composition.topics import TOPICS
from eventstore.errors import LogMismatch, LogUnavailable
from eventstore.kafka.admin import Admin
from eventstore.kafka.clients import Clients
from eventstore.kafka.offsets import OffsetLookup
from eventstore.kafka.reader import SLICE_RECORDS, KafkaReader
from eventstore.kafka.topics import Topics
from eventstore.log import DECISIONS, FLEET, FLEET_0, INSTALLS, ZONES, Partition
from tests.support.virtual_loop import run_virtual

NAMES = Topics(TOPICS, cast("Admin", None), "plane")
"""Topic names. No test here connects to a cluster."""


class Consumer:
    """A consumer that yields these offsets of one partition, and then raises `breaks`. `stopped` is set on close."""

    def __init__(self, offsets: list[int], breaks: Exception | None = None) -> None:
        self._offsets = offsets
        self._breaks = breaks or KafkaError("broken")
        self.stopped = False

    def assign(self, places: list[TopicPartition]) -> None:
        [self._place] = places

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._offsets = [each for each in self._offsets if each >= offset]

    async def getmany(self, **_: int) -> Mapping[TopicPartition, list[Any]]:
        if not self._offsets:
            raise self._breaks
        found, self._offsets = self._offsets, []
        return {
            self._place: [SimpleNamespace(offset=at, timestamp=at, key=b"k", value=b"v", headers=()) for at in found]
        }

    def last_poll_timestamp(self, place: TopicPartition) -> int | None:
        return 0

    async def stop(self) -> None:
        self.stopped = True

    @property
    def _client(self) -> Any:
        async def close() -> None:
            """No connection is open."""

        return SimpleNamespace(close=close)


class ScriptedClients(Clients):
    """Clients that start these consumers, one after the other."""

    def __init__(self, *consumers: Any) -> None:
        super().__init__("", random.Random(1))
        self._consumers = iter(consumers)
        self.starts = 0

    async def started(self, make: Any) -> Any:
        if self.is_closed:
            raise LogUnavailable("log: it was closed")
        self.starts += 1
        return next(self._consumers)

    async def pause(self) -> None:
        await asyncio.sleep(0.1)


class FixedOffsets:
    """An offset lookup whose answers a test sets: the first offset of each partition, and its end."""

    def __init__(self, begin: int = 0, end: int = 100) -> None:
        self.begin, self.end = begin, end

    async def begins(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.begin)

    async def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.end)


def reader_of(clients: Clients, offsets: FixedOffsets, partition: Partition, position: int = 0) -> KafkaReader:
    return KafkaReader(clients, NAMES, cast("OffsetLookup", offsets), {partition: position})


async def read(partition: Partition, *connections: list[int]) -> list[int]:
    """The offsets that a reader yields from these connections, used one after the other."""
    reader = reader_of(ScriptedClients(*map(Consumer, connections)), FixedOffsets(), partition)
    found: list[int] = []
    async with aclosing(reader.batches()) as batches:
        async for _, records in batches:
            found += [record.offset for record in records]
            if found[-1] == connections[-1][-1]:
                return found
    raise AssertionError("the reader ended by itself")


async def test_a_new_consumer_continues_after_the_last_record_read() -> None:
    assert await read(Partition(FLEET, 0), [0, 1], [0, 1, 2]) == [0, 1, 2]


async def test_a_missing_record_ends_the_reader() -> None:
    with pytest.raises(LogMismatch, match="the record at offset 1 changed"):
        await read(Partition(FLEET, 0), [0, 1], [0, 2])


async def test_a_decision_that_compaction_removed_does_not_end_the_reader() -> None:
    assert await read(Partition(DECISIONS, 0), [0, 1], [0, 2, 3]) == [0, 1, 2, 3]


async def test_a_reader_that_is_out_of_range_looks_up_the_offsets_again() -> None:
    """A log that was truncated during reading must be reported: no wait brings the records back."""
    offsets = FixedOffsets()
    clients = ScriptedClients(Consumer([0, 1], OffsetOutOfRangeError()), Consumer([]), Consumer([]))
    async with aclosing(reader_of(clients, offsets, FLEET_0).batches()) as batches:
        await anext(batches)
        offsets.end = 1
        with pytest.raises(LogMismatch, match="position 2 lies outside the log, which holds 0 to 1"):
            await anext(batches)


async def test_only_a_record_that_has_not_expired_proves_that_the_log_is_the_same() -> None:
    partition = Partition(INSTALLS, 0)
    for begin, then in ((2, [2, 3]), (1, [1, 2])):
        offsets = FixedOffsets()
        clients = ScriptedClients(Consumer([0, 1], OffsetOutOfRangeError()), Consumer(list(then)), Consumer([]))
        async with aclosing(reader_of(clients, offsets, partition).batches()) as batches:
            await anext(batches)
            offsets.begin = begin
            _, records = await anext(batches)
            assert [record.offset for record in records] == [offset for offset in then if offset > 1]
    offsets = FixedOffsets()
    clients = ScriptedClients(Consumer([0, 1], OffsetOutOfRangeError()), Consumer([2]))
    async with aclosing(reader_of(clients, offsets, partition).batches()) as batches:
        await anext(batches)
        offsets.begin = 1
        with pytest.raises(LogMismatch, match="the record at offset 1 changed"):
            await anext(batches)


async def test_a_broken_consumer_is_closed() -> None:
    broken = Consumer([0])
    clients = ScriptedClients(broken, Consumer([0, 1]))
    async with aclosing(reader_of(clients, FixedOffsets(), FLEET_0).batches()) as batches:
        await anext(batches)
        await anext(batches)
        assert broken.stopped


async def test_a_reader_without_a_connection_ends_when_its_log_is_closed() -> None:
    clients = ScriptedClients(Consumer([0]))
    reader = reader_of(clients, FixedOffsets(), FLEET_0)
    async with aclosing(reader.batches()) as batches:
        await anext(batches)
        clients.is_closed = True
        following = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.05)
        reader.end(LogMismatch("topic dpuplane.fleet was deleted"))
        async with asyncio.timeout(60):
            with pytest.raises(LogMismatch, match="was deleted"):
                await following


# -- silent consumers


class SilentConsumer(Consumer):
    """A consumer without records whose last successful poll is at most `after_s` seconds after its start."""

    def __init__(self, after_s: float) -> None:
        super().__init__([])
        self._after_s = after_s
        self.began_s: float | None = None
        self.replaced_s = 0.0

    async def getmany(self, **options: int) -> Mapping[TopicPartition, list[Any]]:
        if self.began_s is None:
            self.began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(options["timeout_ms"] / 1_000)
        return {}

    def last_poll_timestamp(self, place: TopicPartition) -> int | None:
        polled_s = min(asyncio.get_running_loop().time() - (self.began_s or 0.0), self._after_s)
        return int(polled_s * 1_000) if self._after_s else None

    async def stop(self) -> None:
        self.replaced_s = asyncio.get_running_loop().time()


async def lifetimes_of(*consumers: SilentConsumer) -> list[float]:
    """The seconds until the reader replaced each consumer. An extra consumer then ends the reader by a LogMismatch."""
    last = Consumer([], LogMismatch("enough"))
    with pytest.raises(LogMismatch, match="enough"):
        async with aclosing(reader_of(ScriptedClients(*consumers, last), FixedOffsets(), FLEET_0).batches()) as batches:
            await anext(batches)
    return [consumer.replaced_s - (consumer.began_s or 0.0) for consumer in consumers]


def test_the_wait_before_a_silent_consumer_is_replaced_grows() -> None:
    lifetimes = run_virtual(lifetimes_of(*(SilentConsumer(0) for _ in range(7))))
    for lifetime_s, silent_s in zip(lifetimes, [3, 6, 12, 24, 48, 60, 60], strict=True):
        assert silent_s <= lifetime_s <= silent_s + 1


def test_a_consumer_that_polled_every_partition_resets_the_wait() -> None:
    first, second, polled, after = run_virtual(
        lifetimes_of(SilentConsumer(0), SilentConsumer(0), SilentConsumer(10), SilentConsumer(0))
    )
    assert (3 <= first <= 4, 6 <= second <= 7) == (True, True)
    assert 13 <= polled <= 14
    assert 3 <= after <= 7


class EmptyConsumer(Consumer):
    """A consumer of any number of partitions, without records."""

    def assign(self, places: list[TopicPartition]) -> None:
        """Accept any partitions."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Ignore the position: there is no record."""


class OneSidedConsumer(SilentConsumer):
    """A consumer of two partitions whose polls return this many records of one and none of the other, for 20 s."""

    def __init__(self, records: int) -> None:
        super().__init__(0)
        self._records = records
        self._next = 0

    async def getmany(self, **options: int) -> Mapping[TopicPartition, list[Any]]:
        await super().getmany(**options)
        if asyncio.get_running_loop().time() - (self.began_s or 0.0) >= 20:
            raise LogMismatch("enough")
        first, self._next = self._next, self._next + self._records
        records = [
            SimpleNamespace(offset=offset, timestamp=0, key=b"", value=b"", headers=())
            for offset in range(first, self._next)
        ]
        return {TopicPartition(NAMES.name(ZONES), 0): records}

    def assign(self, places: list[TopicPartition]) -> None:
        """Accept any partitions."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Ignore the position: every read is from the beginning."""


async def starts_beside(busy: OneSidedConsumer, batch_s: float) -> int:
    """The number of consumers started while the caller takes `batch_s` seconds for each batch of the busy partition."""
    clients = ScriptedClients(busy, EmptyConsumer([], LogMismatch("enough")))
    positions = {Partition(ZONES, 0): 0, FLEET_0: 0}
    reader = KafkaReader(clients, NAMES, cast("OffsetLookup", FixedOffsets()), positions)
    with pytest.raises(LogMismatch, match="enough"):
        async with aclosing(reader.batches()) as batches:
            async for _ in batches:
                await asyncio.sleep(batch_s)
    return clients.starts


def test_a_partition_is_not_silent_while_polls_are_full_of_others() -> None:
    assert run_virtual(starts_beside(OneSidedConsumer(SLICE_RECORDS), 0.0)) == 1
    assert run_virtual(starts_beside(OneSidedConsumer(SLICE_RECORDS - 1), 0.0)) == 2, (
        "the poll had room for the silent partition's records"
    )


def test_time_that_the_caller_spends_on_a_batch_is_not_silence() -> None:
    assert run_virtual(starts_beside(OneSidedConsumer(1), 5.0)) == 1
