"""Runs the contract of logs on the in-memory log of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.engine import LogUnderTest
from tests.contract.event_log import EventLogContract
from tests.contract.read_events import ReadEventsContract
from tests.support.memory_log import MemoryUnderTest


class TestMemoryLog(EventLogContract, ReadEventsContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[LogUnderTest]:
        engine = MemoryUnderTest()
        yield engine
        await engine.aclose()
