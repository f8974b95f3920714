"""An in-memory log: the simplest engine that satisfies the contract, with append times set by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager

from deploy.topics import TOPICS
from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable
from eventstore.log import Batch, EventLog, Headers, Partition, Record
from eventstore.topics import TopicTable
from tests.contract.engine import LogUnderTest

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


class MemoryLog:
    """An EventLog over contents that outlive it. `append_unknown` makes the outcome of the next append unknown."""

    def __init__(self, contents: Contents, now_ms: Callable[[], int]) -> None:
        self.contents = contents
        self.append_unknown = False
        self.topics = contents.topics
        self.partition_count = contents.partition_count
        self._now_ms = now_ms
        self._closed = False

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.topics.partitions(topic, self.partition_count)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self.topics.check_append(partition, key, value, self.partition_count, headers)
        self._check_open()
        if timeout_s <= 0:
            raise AppendUnknown(f"append to {partition}: no time was given")
        self.contents.add(partition, self._now_ms(), key, value, headers)
        await asyncio.sleep(0)
        if self.append_unknown:
            self.append_unknown = False
            raise AppendUnknown(f"append to {partition}: the response was lost")

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
                    yield partition, records
                    if reader.unseen:
                        await asyncio.sleep(0)

    async def begin(self, partition: Partition) -> int:
        return self.contents.begins.get(partition, 0)

    async def end(self, partition: Partition) -> int:
        return self.contents.end(partition)

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        later = (r.offset for r in self.contents.records.get(partition, ()) if r.timestamp_ms >= time_ms)
        return next(later, self.contents.end(partition))

    async def close(self) -> None:
        self._closed = True
        self.contents.tell()

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
        self.now_ms = 1_700_000_000_000
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
