"""The contract on a log that misbehaves in every way it may."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.event_log import EventLogContract
from tests.support.hostile import HostileUnderTest


class TestHostileLog(EventLogContract):
    @pytest.fixture
    async def engine(self, tmp_path: Path) -> AsyncIterator[HostileUnderTest]:
        engine = HostileUnderTest(tmp_path / "log")
        yield engine
        await engine.aclose()
