"""A timeout that starts again with every progress: a busy machine is slow, and a plane without progress is broken.

A look counts what is done, and what moves before that: records that are folded, tables that are applied. The wait ends
once nothing has moved for `STALL_S`, if there were enough looks: a loop that is held up looks seldom.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deploy.demo.load import DemoFailed

STALL_S = 120.0
CHECKS_MIN = 100


class StallTimeout:
    """Ends one wait that makes no progress. `check` is given the progress that each poll saw."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: Any = None
        self._moved_at = clock()
        self._checks = 0

    def check(self, what: str, done: int, total: int, moves: object) -> None:
        """Take in the progress of a poll. Raises DemoFailed if there was none for too long."""
        seen = (done, moves)
        if seen != self._seen:
            self._seen, self._moved_at, self._checks = seen, self._clock(), 0
            return
        self._checks += 1
        stood_s = self._clock() - self._moved_at
        if stood_s > STALL_S and self._checks > CHECKS_MIN:
            raise DemoFailed(f"{what}: {done:,} of {total:,}, without progress for {stood_s:.0f} s")
