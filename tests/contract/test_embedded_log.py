"""Runs the contract of logs on RocksDB in a directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.event_log import EventLogContract
from tests.contract.read_events import ReadEventsContract
from tests.support.embedded import EmbeddedUnderTest


class TestEmbeddedLog(EventLogContract, ReadEventsContract):
    @pytest.fixture
    async def engine(self, tmp_path: Path) -> AsyncIterator[EmbeddedUnderTest]:
        engine = EmbeddedUnderTest(tmp_path / "log")
        yield engine
        await engine.aclose()
