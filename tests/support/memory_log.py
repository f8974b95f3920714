"""An in-memory log: the simplest engine that satisfies the contract, with append times and failures set by the test.

`FaultyLog` draws faults from a seed and lies over any engine; here a test decides which call fails, and how.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable
from eventstore.log import Batch, EventLog, Headers, Partition, Record
from eventstore.topics import TopicTable
from schemas.events import Event
from tests.contract.engine import LogUnderTest

START_MS = 1_700_000_000_000
_BATCH_RECORDS = 500


class Contents:
    """The stored records, independent of the open logs. `begins` advances when records expire."""

    def __init__(self, partition_count: int, topics: TopicTable = TOPICS) -> None:
        self.topics = topics
        self.partition_count = partition_count
        self.records: dict[Partition, list[Record]] = {}
        self.begins: dict[Partition, int] = {}
        self._readers: dict[_Reader, None] = {}
        self._readers_of: dict[Partition, list[_Reader]] = {}

    def end(self, partition: Partition) -> int:
        return self.begins.get(partition, 0) + len(self.records.get(partition, ()))

    def since(self, partition: Partition, position: int) -> list[Record]:
        start = position - self.begins.get(partition, 0)
        return self.records.get(partition, [])[start : start + _BATCH_RECORDS]

    def add(self, partition: Partition, timestamp_ms: int, key: bytes, value: bytes, headers: Headers = ()) -> Record:
        record = Record(self.end(partition), timestamp_ms, key, value, headers)
        self.records.setdefault(partition, []).append(record)
        for reader in self._readers_of.get(partition, ()):
            reader.look(partition)
        return record

    def tell(self) -> None:
        """Wake every reader for all of its partitions after a change other than an append."""
        for reader in self._readers:
            reader.look(*reader.wanted)

    @contextmanager
    def read_by(self, positions: Mapping[Partition, int]) -> Iterator[_Reader]:
        """A reader that is notified of records it has not read."""
        reader = _Reader(dict(positions))
        self._readers[reader] = None
        for partition in positions:
            self._readers_of.setdefault(partition, []).append(reader)
        try:
            yield reader
        finally:
            del self._readers[reader]
            for partition in positions:
                self._readers_of[partition].remove(reader)


class _Reader:
    """The positions of a reader, and the partitions with new records: scanning all partitions would cost time for each
    of them.
    """

    def __init__(self, wanted: dict[Partition, int]) -> None:
        self.wanted = wanted
        self.unseen = dict.fromkeys(wanted)
        self._told = asyncio.Event()

    def look(self, *partitions: Partition) -> None:
        """Mark these partitions as possibly having new records."""
        self.unseen.update(dict.fromkeys(partitions))
        self._told.set()

    async def next(self) -> Partition:
        """The next partition to read."""
        while not self.unseen:
            self._told.clear()
            await self._told.wait()
        partition = next(iter(self.unseen))
        del self.unseen[partition]
        return partition


@dataclass(slots=True)
class Failures:
    """How calls to a log fail. By default no call fails."""

    append_latency_s: float = 0.0
    append_error: Exception | None = None
    """Raised by each append, which never lands."""
    is_unanswered: bool = False
    """Appends land and get no response within their time."""
    late_s: dict[Partition, float] = field(default_factory=dict)
    """The outcome of the next append to a partition is unknown, and the record lands after this time."""
    end_latency_s: float = 0.0
    """The latency of a query for the end of a partition. The returned end is as old as the latency."""
    lost_ends: int = 0
    """The number of next queries for an end that fail."""
    read_latency_s: float = 0.0
    """The latency of each batch of records."""
    broken_reads: int = 0
    """The number of next batches after which the read fails."""
    is_away: bool = False
    """Reads and queries for an end fail, while other writers reach the log."""

    def before_append(self) -> tuple[float, Exception | None]:
        """The latency of the next append, and its error."""
        return self.append_latency_s, self.append_error


class Attempt(NamedTuple):
    """The arguments of an append, with any outcome."""

    partition: Partition
    key: bytes
    value: bytes


class MemoryLog:
    """An EventLog over contents that outlive it. `failures_of` has the failures of the topics that fail in a way of
    their own.
    """

    def __init__(self, contents: Contents | None = None, now_ms: Callable[[], int] = lambda: START_MS) -> None:
        self.contents = contents or Contents(4)
        self.failures = Failures()
        self.failures_of: dict[str, Failures] = {}
        self.attempts: list[Attempt] = []
        self.topics = self.contents.topics
        self.partition_count = self.contents.partition_count
        self._now_ms = now_ms
        self._closed = False

    def put(self, partition: Partition, *events: Event) -> None:
        """Append events at once, as another writer does."""
        for event in events:
            self.contents.add(partition, self._now_ms(), b"key", encode(event))

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.topics.partitions(topic, self.partition_count)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self.topics.check_append(partition, key, value, self.partition_count, headers)
        self._check_open()
        if timeout_s <= 0:
            raise AppendUnknown(f"append to {partition}: no time was given")
        self.attempts.append(Attempt(partition, key, value))
        failures = self._failures_of(partition)
        latency_s, error = failures.before_append()
        if latency_s:
            await asyncio.sleep(latency_s)
        if error is not None:
            raise error

        def land() -> None:
            self.contents.add(partition, self._now_ms(), key, value, headers)

        if (late_s := failures.late_s.pop(partition, None)) is not None:
            asyncio.get_running_loop().call_later(late_s, land)
            raise AppendUnknown(f"append to {partition}: the response was lost")
        land()
        await asyncio.sleep(timeout_s if failures.is_unanswered else 0)
        if failures.is_unanswered:
            raise AppendUnknown(f"append to {partition}: no response within {timeout_s:g} s")

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        contents = self.contents
        with contents.read_by(positions) as reader:
            while True:
                partition = await reader.next()
                self._check_open()
                self._check_position(contents, partition, reader.wanted[partition])
                if records := contents.since(partition, reader.wanted[partition]):
                    reader.wanted[partition] = records[-1].offset + 1
                    if len(records) == _BATCH_RECORDS:
                        reader.look(partition)
                    failures = self._failures_of(partition)
                    if failures.read_latency_s:
                        await asyncio.sleep(failures.read_latency_s)
                    self._check_reach(failures)
                    yield partition, records
                    if failures.broken_reads:
                        failures.broken_reads -= 1
                        raise LogUnavailable("the connection broke")
                    if reader.unseen:
                        await asyncio.sleep(0)

    async def begin(self, partition: Partition) -> int:
        return self.contents.begins.get(partition, 0)

    async def end(self, partition: Partition) -> int:
        failures = self._failures_of(partition)
        self._check_reach(failures)
        if failures.lost_ends:
            failures.lost_ends -= 1
            raise LogUnavailable("the log is away")
        found = self.contents.end(partition)
        if failures.end_latency_s:
            await asyncio.sleep(failures.end_latency_s)
        return found

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        later = (r.offset for r in self.contents.records.get(partition, ()) if r.timestamp_ms >= time_ms)
        return next(later, self.contents.end(partition))

    async def close(self) -> None:
        self._closed = True
        self.contents.tell()

    def _failures_of(self, partition: Partition) -> Failures:
        return self.failures_of.get(partition.topic, self.failures) if self.failures_of else self.failures

    def _check_reach(self, failures: Failures) -> None:
        if failures.is_away:
            raise LogUnavailable("the log is away")

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("log: it was closed")

    def _check_position(self, contents: Contents, partition: Partition, position: int) -> None:
        if contents is not self.contents:
            raise LogMismatch(f"{partition}: the log was made anew")
        begin, end = contents.begins.get(partition, 0), contents.end(partition)
        if not begin <= position <= end:
            raise LogMismatch(f"position {position} of {partition} is outside of what the log has, {begin} to {end}")


class MemoryUnderTest(LogUnderTest):
    """One in-memory log. Its clock advances only when the test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.contents = Contents(self.partition_count)
        self.log: MemoryLog | None = None

    async def open(self, *, partition_count: int | None = None) -> EventLog:
        if partition_count not in (None, self.contents.partition_count):
            raise LogMismatch(f"the log has {self.contents.partition_count} partitions, not {partition_count}")
        self.log = MemoryLog(self.contents, lambda: self.now_ms)
        return self.log

    async def truncate(self, partition: Partition, position: int) -> None:
        del self.contents.records[partition][position - self.contents.begins.get(partition, 0) :]

    async def recreate(self) -> None:
        old, self.contents = self.contents, Contents(self.partition_count)
        if self.log is not None:
            self.log.contents = self.contents
        old.tell()

    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        del self.contents.records[partition][: position - self.contents.begins.get(partition, 0)]
        self.contents.begins[partition] = position
        self.contents.tell()

    async def tick(self) -> None:
        self.now_ms += 1_000

    async def aclose(self) -> None:
        if self.log is not None:
            await self.log.close()
