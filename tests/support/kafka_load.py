"""Appenders and a reader under load while a test disturbs the log, and the check of their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from eventstore.errors import AppendUnknown
from eventstore.kafka.log import KafkaLog
from eventstore.log import Partition, Record
from tests.contract.engine import KEY, first_values, read_all

PACE_S = 0.02
PATIENCE_S = 60.0


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
