"""A stream that lasts is not asked for its next item once its server stops."""

from __future__ import annotations

import asyncio

import pytest

from commands.streams.lasting import LastingStreams
from eventstore.errors import LogUnavailable


async def test_a_stopped_server_asks_for_no_item() -> None:
    asked: list[bool] = []

    async def next_item() -> None:
        asked.append(True)

    streams = LastingStreams(1)
    until_s = asyncio.get_running_loop().time() + 60.0
    await streams.wait(next_item, until_s)
    streams.stop()
    with pytest.raises(LogUnavailable, match="stopping"):
        await streams.wait(next_item, until_s)
    assert len(asked) == 1
