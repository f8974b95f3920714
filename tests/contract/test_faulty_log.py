"""Runs the contract of logs on a log with every fault that the contract allows."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventstore.log import EventLog, Partition
from tests.contract.event_log import EventLogContract
from tests.support.embedded import EmbeddedUnderTest
from tests.support.faulty_log import FaultyLog, LogFaults

SEED = 7
FAULTS = LogFaults(duplicate=0.2, lost_answer=0.1, late=0.1, never=0.1, delay_max_s=0.05, backward_timestamps=0.2)


class FaultyLogUnderTest(EmbeddedUnderTest):
    """The contract uses positions as readers see them. They are translated for the underlying log, which is damaged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.rng = random.Random(SEED)

    async def open(self, *, partition_count: int | None = None) -> EventLog:
        return FaultyLog(await self.open_embedded(partition_count), self.rng, FAULTS, seed=SEED)

    async def truncate(self, partition: Partition, position: int) -> None:
        log = await self.open()
        assert isinstance(log, FaultyLog)
        inner = log.view.inner(partition, position)
        await log.close()
        await super().truncate(partition, inner)

    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        assert isinstance(log, FaultyLog)
        await super().expire(log.inner, partition, log.view.inner(partition, position))

    async def settle(self, log: EventLog) -> None:
        assert isinstance(log, FaultyLog)
        await log.settle()


class TestFaultyLog(EventLogContract):
    @pytest.fixture
    async def engine(self, tmp_path: Path) -> AsyncIterator[FaultyLogUnderTest]:
        engine = FaultyLogUnderTest(tmp_path / "log")
        yield engine
        await engine.aclose()
