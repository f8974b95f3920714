"""Reads a log in RocksDB, in the owning process and beside it: batches from several partitions in turn, then the tail.

A reader takes one bounded batch per partition and round, so a long partition does not starve a short one, and it yields
the event loop between batches. At the tail it waits for an event that signals new records; it does not poll. A reader
reads no record outside `_bounds`. The owner advances `_bounds` only after a batch is synced, so its readers never see
records of a failed write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eventstore.embedded.rocks import Bounds, Rocks, RocksError, directory_identity
from eventstore.errors import LogMismatch, LogUnavailable, PlaneError
from eventstore.log import Batch, Partition
from eventstore.topics import TopicTable

_TURN_BYTES = 64 << 10
"""Bytes that are read before the reader yields the event loop. A read at the tail is smaller: it returns the records of
one commit, a few per partition."""
_RECORD_BYTES = 100
"""Estimated size of a record without its value, in bytes."""


class RocksReader:
    """The reading half of an EventLog over RocksDB."""

    def __init__(self, topics: TopicTable, path: Path, rocks: Rocks, partition_count: int) -> None:
        self.topics = topics
        self._path = path
        self._rocks: Rocks | None = rocks
        self._partition_count = partition_count
        self._bounds = rocks.all_bounds(topics.all_partitions(partition_count))
        self._changed = asyncio.Event()
        self._ended: PlaneError | None = None
        self._identity = directory_identity(path)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.topics.partitions(topic, self._partition_count)

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        wanted = dict(positions)
        unyielded = 0
        while True:
            changed = self._changed
            found = False
            for partition, position in wanted.items():
                end = self._check_position(partition, position)
                if position < end:
                    with self._reading() as rocks:
                        records = rocks.scan(partition, position, end)
                    wanted[partition] = records[-1].offset + 1
                    found = True
                    unyielded += sum(_RECORD_BYTES + len(record.value) for record in records)
                    yield partition, records
                    if unyielded >= _TURN_BYTES:
                        unyielded = 0
                        await asyncio.sleep(0)
            if not found:
                unyielded = 0
                await changed.wait()

    async def begin(self, partition: Partition) -> int:
        return self._bounds_of(partition).begin

    async def end(self, partition: Partition) -> int:
        return self._bounds_of(partition).end

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        return self._first_at(partition, time_ms)

    def _first_at(self, partition: Partition, time_ms: int) -> int:
        begin, end, _ = self._bounds_of(partition)
        with self._reading() as rocks:
            return rocks.first_at(partition, time_ms, begin, end)

    @contextmanager
    def _reading(self) -> Iterator[Rocks]:
        self._raise_if_ended()
        if self._rocks is None:
            raise LogUnavailable(f"log directory {self._path} is being reopened after a failed write")
        try:
            yield self._rocks
        except RocksError as error:
            raise LogUnavailable(f"log directory {self._path} cannot be read: {error}") from error

    def _check_position(self, partition: Partition, position: int) -> int:
        begin, end, _ = self._bounds_of(partition)
        if not begin <= position <= end:
            raise LogMismatch(
                f"position {position} of {partition} lies outside the log, which holds {begin} to {end}: "
                "the log was truncated, re-created, or expired past it"
            )
        return end

    def _bounds_of(self, partition: Partition) -> Bounds:
        self._raise_if_ended()
        bounds = self._bounds.get(partition)
        if bounds is None:
            raise LogMismatch(f"{partition} does not exist: the log has {self._partition_count} partitions")
        return bounds

    def _take_over_bounds(self, bounds: Mapping[Partition, Bounds]) -> None:
        for partition, before in self._bounds.items():
            if bounds[partition].end < before.end:
                raise LogMismatch(
                    f"{partition} in {self._path} ended at {before.end} before, and ends at {bounds[partition].end} now"
                )
        self._bounds = dict(bounds)

    def _check_directory(self) -> None:
        if directory_identity(self._path) != self._identity:
            self._end(LogMismatch(f"log directory {self._path} was removed or re-created while in use"))

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _end(self, reason: PlaneError) -> None:
        if self._ended is None:
            self._ended = reason
            self._announce()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended)) from self._ended
