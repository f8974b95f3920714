"""Waiting for a condition that other tasks bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVENTUALLY_S = 90.0


async def until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds. Raises TimeoutError if it never does."""
    async with asyncio.timeout(EVENTUALLY_S):
        while not condition():
            await asyncio.sleep(0.01)
