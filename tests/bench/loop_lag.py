"""The longest work of a process between two turns of its event loop, in CPU time: on a busy machine it is the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

EVERY_S = 0.001


class LoopLag:
    """`longest_s` is the longest CPU time, so far, between two turns of a task that only sleeps."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(EVERY_S)
            now_s = time.thread_time()
            self.longest_s = max(self.longest_s, now_s - last_s)
            last_s = now_s


@asynccontextmanager
async def loop_lag() -> AsyncIterator[LoopLag]:
    """Watch the loop while the context is entered."""
    found = LoopLag()
    task = asyncio.create_task(found.watch())
    try:
        yield found
    finally:
        task.cancel()
