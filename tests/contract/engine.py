"""What the suite needs of an engine beyond EventLog: to open one log again and again, and to damage it.

An engine's test module subclasses `LogUnderTest`, returns it from the fixture `engine`, and inherits the suite.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager

from eventstore.errors import AppendUnknown
from eventstore.log import ZONES, EventLog, Headers, Partition, Record, partitions_of

KEY = b"zone-1"


class LogUnderTest(ABC):
    """One log of `partition_count` partitions, empty at first. Whatever it opens is closed by `aclose`."""

    partition_count = 4
    patience_s = 10.0
    """Within this everything that should happen has happened, on a loaded machine."""

    @abstractmethod
    async def open(self, *, partition_count: int | None = None) -> EventLog:
        """Open the log, made if it is missing. What was opened before has been closed by then."""

    @abstractmethod
    async def truncate(self, partition: Partition, position: int) -> None:
        """Lose the records from `position` on, as an unclean election or an old copy of a disk would. Log closed."""

    @abstractmethod
    async def recreate(self) -> None:
        """Put an empty log where this one was. The log may be open, and read from."""

    @abstractmethod
    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        """Drop the records before `position`, as retention does. At least one record lies behind it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close and remove everything."""

    async def settle(self, log: EventLog) -> None:
        """Wait until nothing is under way that could still land. Most engines leave nothing under way."""
        await asyncio.sleep(0)

    async def tick(self) -> None:
        """Let time pass in which the next append is stamped later."""
        await asyncio.sleep(0.003)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EventLog]:
        """Open, and close again."""
        log = await self.open()
        try:
            yield log
        finally:
            await log.close()

    def zones(self) -> tuple[Partition, ...]:
        """The partitions that most tests use."""
        return partitions_of(ZONES, self.partition_count)


async def put(log: EventLog, partition: Partition, *values: bytes, key: bytes = KEY, headers: Headers = ()) -> None:
    """Append one after the other, each until it is acknowledged: an unknown outcome is tried again."""
    for value in values:
        while True:
            try:
                await log.append(partition, key, value, headers=headers)
                break
            except AppendUnknown:
                await asyncio.sleep(0.01)


async def read_to_end(
    log: EventLog, positions: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
) -> dict[Partition, list[Record]]:
    """The records of these partitions from these positions to these ends, or to what is the end now."""
    ends = ends or {partition: await log.end(partition) for partition in positions}
    found: dict[Partition, list[Record]] = {partition: [] for partition in positions}
    missing = {partition for partition, position in positions.items() if position < ends[partition]}
    async with aclosing(log.read(positions)) as batches:
        while missing:
            partition, records = await anext(batches)
            found[partition] += [record for record in records if record.offset < ends[partition]]
            if records[-1].offset + 1 >= ends[partition]:
                missing.discard(partition)
    return found


async def read_all(log: EventLog, partition: Partition) -> list[Record]:
    """Every record that stands in a partition now."""
    return (await read_to_end(log, {partition: await log.begin(partition)}))[partition]


def first_values(records: Iterable[Record]) -> list[bytes]:
    """The values in order of their first occurrence: an engine may land a record twice, never out of order."""
    return list(dict.fromkeys(record.value for record in records))


def numbered(prefix: str, count: int) -> list[bytes]:
    """Values that tell where they belong."""
    return [f"{prefix}-{i}".encode() for i in range(count)]
