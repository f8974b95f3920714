"""A timeout that restarts with each progress: a busy machine makes slow progress, and a broken plane makes none.

A poll counts the finished parts of a step, and the work that leads to them, such as folded records and applied tables.
The wait fails when the counts have not changed for more than `STALL_S` and for more than `CHECKS_MIN` polls. Both
limits are needed, because a blocked event loop polls rarely.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deploy.demo.load import DemoFailed

STALL_S = 120.0
CHECKS_MIN = 100


class StallTimeout:
    """The timeout of one wait. `check` is called with the progress of each poll."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: Any = None
        self._moved_at = clock()
        self._checks = 0

    def check(self, what: str, done: int, total: int, moves: object) -> None:
        """Record the progress of a poll. Raises DemoFailed after too long without progress."""
        seen = (done, moves)
        if seen != self._seen:
            self._seen, self._moved_at, self._checks = seen, self._clock(), 0
            return
        self._checks += 1
        stood_s = self._clock() - self._moved_at
        if stood_s > STALL_S and self._checks > CHECKS_MIN:
            raise DemoFailed(f"{what}: {done:,} of {total:,}, without progress for {stood_s:.0f} s")
