"""A Kafka reader that restarts: its conditions, and the proof that the log is still the same."""

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
"""The names of topics; nothing here asks a cluster for them."""


class Consumer:
    """Has these offsets of a partition; the connection breaks like this when they are read. `stopped` once closed."""

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
            """Nothing is open."""

        return SimpleNamespace(close=close)


class Scripted(Clients):
    """Starts these consumers, one after the other."""

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


class Known:
    """Where a partition begins and ends; `begin` and `end` may move."""

    def __init__(self, begin: int = 0, end: int = 100) -> None:
        self.begin, self.end = begin, end

    async def begins(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.begin)

    async def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.end)


def reader_of(clients: Clients, known: Known, partition: Partition, position: int = 0) -> KafkaReader:
    return KafkaReader(clients, NAMES, cast("OffsetLookup", known), {partition: position})


async def read(partition: Partition, *connections: list[int]) -> list[int]:
    """The offsets that are read, one connection after the other."""
    reader = reader_of(Scripted(*map(Consumer, connections)), Known(), partition)
    found: list[int] = []
    async with aclosing(reader.batches()) as batches:
        async for _, records in batches:
            found += [record.offset for record in records]
            if found[-1] == connections[-1][-1]:
                return found
    raise AssertionError("reading never ends by itself")


async def test_a_reader_goes_on_behind_the_record_that_it_has_read_last() -> None:
    assert await read(Partition(FLEET, 0), [0, 1], [0, 1, 2]) == [0, 1, 2]


async def test_a_record_that_is_gone_ends_a_reader() -> None:
    with pytest.raises(LogMismatch, match="the record at offset 1 changed"):
        await read(Partition(FLEET, 0), [0, 1], [0, 2])


async def test_a_decision_that_brokers_have_dropped_for_its_copy_ends_no_reader() -> None:
    assert await read(Partition(DECISIONS, 0), [0, 1], [0, 2, 3]) == [0, 1, 2, 3]


async def test_a_reader_that_is_out_of_range_asks_again_where_the_log_is() -> None:
    """A log that lost its end while it was read is no outage, and would be waited out for ever."""
    known = Known()
    clients = Scripted(Consumer([0, 1], OffsetOutOfRangeError()), Consumer([]), Consumer([]))
    async with aclosing(reader_of(clients, known, FLEET_0).batches()) as batches:
        await anext(batches)
        known.end = 1
        with pytest.raises(LogMismatch, match="position 2 lies outside the log, which holds 0 to 1"):
            await anext(batches)


async def test_a_record_that_has_expired_proves_nothing_and_one_that_has_not_still_does() -> None:
    partition = Partition(INSTALLS, 0)
    for begin, then in ((2, [2, 3]), (1, [1, 2])):
        known = Known()
        clients = Scripted(Consumer([0, 1], OffsetOutOfRangeError()), Consumer(list(then)), Consumer([]))
        async with aclosing(reader_of(clients, known, partition).batches()) as batches:
            await anext(batches)
            known.begin = begin
            _, records = await anext(batches)
            assert [record.offset for record in records] == [offset for offset in then if offset > 1]
    known = Known()
    clients = Scripted(Consumer([0, 1], OffsetOutOfRangeError()), Consumer([2]))
    async with aclosing(reader_of(clients, known, partition).batches()) as batches:
        await anext(batches)
        known.begin = 1
        with pytest.raises(LogMismatch, match="the record at offset 1 changed"):
            await anext(batches)


async def test_a_consumer_that_broke_is_closed() -> None:
    broken = Consumer([0])
    clients = Scripted(broken, Consumer([0, 1]))
    async with aclosing(reader_of(clients, Known(), FLEET_0).batches()) as batches:
        await anext(batches)
        await anext(batches)
        assert broken.stopped


async def test_a_reader_whose_log_is_closed_while_it_has_no_connection_ends() -> None:
    clients = Scripted(Consumer([0]))
    reader = reader_of(clients, Known(), FLEET_0)
    async with aclosing(reader.batches()) as batches:
        await anext(batches)
        clients.is_closed = True
        following = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.05)
        reader.end(LogMismatch("topic dpuplane.fleet was deleted"))
        async with asyncio.timeout(10):
            with pytest.raises(LogMismatch, match="was deleted"):
                await following


# -- silence


class Frozen(Consumer):
    """Hears nothing of its partition any more, from so long after its start on."""

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
        heard_s = min(asyncio.get_running_loop().time() - (self.began_s or 0.0), self._after_s)
        return int(heard_s * 1_000) if self._after_s else None

    async def stop(self) -> None:
        self.replaced_s = asyncio.get_running_loop().time()


async def lives_of(*consumers: Frozen) -> list[float]:
    """How long each of these was kept; the reading ends with one that breaks as a log does that is another."""
    last = Consumer([], LogMismatch("enough"))
    with pytest.raises(LogMismatch, match="enough"):
        async with aclosing(reader_of(Scripted(*consumers, last), Known(), FLEET_0).batches()) as batches:
            await anext(batches)
    return [consumer.replaced_s - (consumer.began_s or 0.0) for consumer in consumers]


def test_a_consumer_that_hears_nothing_is_replaced_ever_later_while_that_does_not_help() -> None:
    lives = run_virtual(lives_of(*(Frozen(0) for _ in range(7))))
    for life, silent_s in zip(lives, [3, 6, 12, 24, 48, 60, 60], strict=True):
        assert silent_s <= life <= silent_s + 1


def test_one_that_heard_something_of_every_partition_makes_the_next_patience_short_again() -> None:
    first, second, heard, after = run_virtual(lives_of(Frozen(0), Frozen(0), Frozen(10), Frozen(0)))
    assert (3 <= first <= 4, 6 <= second <= 7) == (True, True)
    assert 13 <= heard <= 14
    assert 3 <= after <= 7


class Both(Consumer):
    """Of two partitions."""

    def assign(self, places: list[TopicPartition]) -> None:
        """Whichever they are."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """They have nothing."""


class Busy(Frozen):
    """Has so many records of another partition with every poll, nothing of ours, and ends after 20 s."""

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
        """Both of them."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """From the beginning."""


async def starts_beside(busy: Busy, taken_in_s: float) -> int:
    """How many consumers it took to read beside this busy partition, of which each batch is taken in so long."""
    clients = Scripted(busy, Both([], LogMismatch("enough")))
    positions = {Partition(ZONES, 0): 0, FLEET_0: 0}
    reader = KafkaReader(clients, NAMES, cast("OffsetLookup", Known()), positions)
    with pytest.raises(LogMismatch, match="enough"):
        async with aclosing(reader.batches()) as batches:
            async for _ in batches:
                await asyncio.sleep(taken_in_s)
    return clients.starts


def test_a_partition_that_waits_for_its_turn_is_not_silent() -> None:
    assert run_virtual(starts_beside(Busy(SLICE_RECORDS), 0.0)) == 1
    assert run_virtual(starts_beside(Busy(SLICE_RECORDS - 1), 0.0)) == 2, "there was room for it"


def test_a_reader_that_was_busy_elsewhere_takes_nobody_for_silent() -> None:
    assert run_virtual(starts_beside(Busy(1), 5.0)) == 1
