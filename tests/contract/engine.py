"""What the contract needs of an engine besides EventLog: to reopen one log repeatedly, and to damage it.

The test module of an engine subclasses `LogUnderTest`, returns it from the fixture `engine`, and inherits the contract.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager

from deploy.composition.topics import TOPICS
from eventstore.errors import AppendUnknown
from eventstore.log import ZONES, EventLog, Headers, Partition, Record

KEY = b"zone-1"


class LogUnderTest(ABC):
    """One log of `partition_count` partitions, empty at first. `aclose` closes everything that it opened."""

    partition_count = 4
    patience_s = 60.0
    """Time limit for everything that must happen, also on a loaded machine."""

    @abstractmethod
    async def open(self, *, partition_count: int | None = None) -> EventLog:
        """Open the log, and create it if it is missing. Any former instance must be closed."""

    @abstractmethod
    async def truncate(self, partition: Partition, position: int) -> None:
        """Remove the records from `position` on, as an unclean election or an old disk does. The log is closed."""

    @abstractmethod
    async def recreate(self) -> None:
        """Replace this log by an empty one. The log may be open and have readers."""

    @abstractmethod
    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        """Remove the records before `position`, as retention does. At least one record remains."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close and remove everything."""

    async def settle(self, log: EventLog) -> None:
        """Wait until no append in flight can land any more. Most engines have none."""
        await asyncio.sleep(0)

    async def tick(self) -> None:
        """Advance time, so that the next append gets a later timestamp."""
        await asyncio.sleep(0.003)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[EventLog]:
        """Open the log during the context."""
        log = await self.open()
        try:
            yield log
        finally:
            await log.close()

    def zones(self) -> tuple[Partition, ...]:
        """The partitions that most tests use."""
        return TOPICS.partitions(ZONES, self.partition_count)


async def put(log: EventLog, partition: Partition, *values: bytes, key: bytes = KEY, headers: Headers = ()) -> None:
    """Append the values in order. Repeat an append with an unknown outcome until it is acknowledged."""
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
    """The records of these partitions from these positions to these ends, or to the current ends."""
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
    """Every record in a partition."""
    return (await read_to_end(log, {partition: await log.begin(partition)}))[partition]


def first_values(records: Iterable[Record]) -> list[bytes]:
    """The values in the order of their first occurrence. An engine may land a record twice, but never out of order."""
    return list(dict.fromkeys(record.value for record in records))


def numbered(prefix: str, count: int) -> list[bytes]:
    """Values that contain their own number."""
    return [f"{prefix}-{i}".encode() for i in range(count)]
