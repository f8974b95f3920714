"""The contract on a log with every fault that the contract allows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.event_log import EventLogContract
from tests.support.faulty_log import FaultyLogUnderTest


class TestFaultyLog(EventLogContract):
    @pytest.fixture
    async def engine(self, tmp_path: Path) -> AsyncIterator[FaultyLogUnderTest]:
        engine = FaultyLogUnderTest(tmp_path / "log")
        yield engine
        await engine.aclose()
