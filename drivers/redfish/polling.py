"""Reads of a BMC by one attempt, again and again until something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from drivers.backends.bmc import Unreachable
from drivers.provisioning.attempts import CallTiming

FAILED_READS_MAX = 5
"""Maximum number of reads without an answer one after the other. A BMC that writes its flash often does not answer."""

_Seen = TypeVar("_Seen")


class Polling:
    """Tolerates some failed reads in a row, pauses longer each time, and knows for how long nothing has changed."""

    def __init__(self, timing: CallTiming) -> None:
        self._timing = timing
        self._pause_s = timing.poll_s
        self._shape: object = None
        self._since_s = 0.0

    async def read(self, look: Callable[[], Awaitable[_Seen]], *, failures_max: int = FAILED_READS_MAX) -> _Seen:
        """Look once, and again after a failure. Raises Unreachable after more failures in a row than `failures_max`."""
        failures = 0
        while True:
            try:
                return await look()
            except Unreachable:
                failures += 1
                if failures > failures_max:
                    raise
                await asyncio.sleep(self._timing.poll_max_s)

    async def pause(self) -> None:
        """Wait, half as long again as the last time."""
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, self._timing.poll_max_s)

    def restart(self) -> None:
        """Begin with short pauses again: the BMC was asked to do something."""
        self._pause_s = self._timing.poll_s

    def quiet_s(self, shape: object) -> float:
        """The time since what was seen had another shape, or since `moved`."""
        now_s = asyncio.get_running_loop().time()
        if shape != self._shape:
            self._shape, self._since_s = shape, now_s
        return now_s - self._since_s

    def moved(self) -> None:
        """Count the quiet time from now: the device was restarted."""
        self._since_s = asyncio.get_running_loop().time()
