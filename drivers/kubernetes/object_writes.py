"""Writes of single objects, within a budget of requests per second.

After a conflict or an unknown outcome, the object is read again, and the write is decided again from the object as it
is then. If the server asks for a pause, the next attempt waits that long. A permanent refusal ends the write.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from random import Random

from schemas.kubernetes.api import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiError

RETRY_S = 0.1
RETRY_S_MAX = 30.0
_UNAVAILABLE = 503
ATTEMPTS = 8
"""Maximum attempts at one write; after the last one, the write is postponed."""


class WriteResult(Enum):
    """How a write ended."""

    DONE = "done"
    REFUSED = "refused"
    POSTPONED = "postponed"


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


class ObjectWrites:
    """Writes with retries. `answers` counts the answers by status; status 0 means no answer."""

    def __init__(self, budget: RequestBudget, rng: Random) -> None:
        self.answers: Counter[int] = Counter()
        self._budget = budget
        self._rng = rng

    async def write(
        self, attempt: Callable[[], Awaitable[bool]], read: Callable[[], Awaitable[None]]
    ) -> tuple[WriteResult, str]:
        """Attempt a write until it is done, refused or postponed. `attempt` decides the write each time, and returns
        False if nothing is left to write. `read` reads the object before the next attempt. Returns the result, and the
        last error if the write was not done."""
        message = ""
        for number in range(ATTEMPTS):
            try:
                await self._budget.take()
                if await attempt():
                    self.answers[200] += 1
                return WriteResult.DONE, ""
            except ApiError as error:
                message = str(error)
                self.answers[error.status] += 1
                is_passing = error.may_have_taken_effect or error.status in (CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS)
                if not is_passing:
                    return WriteResult.REFUSED, message
                longest_s = min(RETRY_S_MAX, RETRY_S * 2**number)
                pause_s = 0.0 if error.status == CONFLICT and not number else self._rng.uniform(0.0, longest_s)
                await self._pause(error, pause_s)
            try:
                await self._budget.take()
                await read()
            except ApiError as error:
                message = str(error)
                await self._pause(error, self._rng.uniform(0.0, longest_s))
        return WriteResult.POSTPONED, message

    async def _pause(self, error: ApiError, pause_s: float) -> None:
        pause_s = max(pause_s, error.retry_after_s or 0.0)
        if error.status in (0, TOO_MANY_REQUESTS, _UNAVAILABLE):
            self._budget.pause(pause_s)
        await asyncio.sleep(pause_s)
