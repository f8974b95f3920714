"""Waits for the first of several changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*changes: Coroutine[Any, Any, None], timeout_s: float) -> None:
    """Return when one of these waits returns, or after the time. An error of a wait is raised."""
    tasks = [asyncio.ensure_future(change) for change in changes]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
