"""The rate of requests to one API server, shared by all writers of an edge."""

from __future__ import annotations

import asyncio


class RequestBudget:
    """Limits requests to `per_s` per second, after a burst of one second's worth."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1.0 / per_s
        self._burst_s = 1.0
        self._next_s = 0.0

    def pause(self, seconds: float) -> None:
        """Make no request for this time: the server is overloaded or unreachable."""
        self._next_s = max(self._next_s, asyncio.get_running_loop().time() + seconds)

    async def take(self) -> None:
        """Wait until one more request is within the budget."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - self._burst_s) + self._interval_s
        await asyncio.sleep(max(0.0, self._next_s - now_s))

    async def take_spare(self) -> None:
        """Take one request of low priority, once no other request waits and half of the burst is unused."""
        now_s = asyncio.get_running_loop().time
        while True:
            wait_s = self._next_s + self._burst_s / 2 - now_s()
            if wait_s <= 0:
                break
            await asyncio.sleep(max(wait_s, self._interval_s))  # a wait of a rounding error would not end
        await self.take()
