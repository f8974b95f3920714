"""An embedded log under test. Its clock advances only when the test moves it."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from deploy.composition.topics import TOPICS
from eventstore.embedded.log import EmbeddedLog
from eventstore.log import EventLog, Partition
from tests.contract.engine import LogUnderTest


class Clock:
    """Wall time set by the test."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


class EmbeddedUnderTest(LogUnderTest):
    """One directory, opened and damaged as the suite asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self._open = AsyncExitStack()

    async def open_embedded(self, partition_count: int | None = None) -> EmbeddedLog:
        count = self.partition_count if partition_count is None else partition_count
        return await self._open.enter_async_context(
            EmbeddedLog.open(TOPICS, self.path, partition_count=count, now_ms=self.clock)
        )

    async def open(self, *, partition_count: int | None = None) -> EventLog:
        return await self.open_embedded(partition_count)

    async def truncate(self, partition: Partition, position: int) -> None:
        """Copy the remaining records into a new directory that replaces the old one."""
        old = self.path.rename(self.path.with_name("old"))
        async with (
            EmbeddedLog.open(TOPICS, old, partition_count=self.partition_count, now_ms=self.clock) as source,
            EmbeddedLog.open(TOPICS, self.path, partition_count=self.partition_count, now_ms=self.clock) as target,
        ):
            async for _, records in source.read({partition: 0}):
                for record in records:
                    if record.offset < position:
                        self.clock.ms = record.timestamp_ms
                        await target.append(partition, record.key, record.value)
                if records[-1].offset + 1 == await source.end(partition):
                    break
        shutil.rmtree(old)

    async def recreate(self) -> None:
        shutil.rmtree(self.path)

    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        assert isinstance(log, EmbeddedLog)
        log.expire(partition, position)

    async def tick(self) -> None:
        self.clock.ms += 1_000

    async def aclose(self) -> None:
        await self._open.aclose()
