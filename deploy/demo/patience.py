"""How long the demo waits: as long as something moves. A busy machine is slow, and a plane that stands still is broken.

A look counts what is done, and what moves before that: records that are folded, tables that are applied. The wait ends
once nothing has moved for `STALL_S`, if there were enough looks: a loop that is held up looks seldom.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from deploy.demo.load import DemoFailed

STALL_S = 120.0
LOOKS_LEAST = 100


class Patience:
    """Judges one wait. `still` is given what each look saw."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: Any = None
        self._moved_at = clock()
        self._looks = 0

    def check(self, what: str, done: int, total: int, moves: object) -> None:
        """Take in a look. Raises DemoFailed if nothing has moved for too long."""
        seen = (done, moves)
        if seen != self._seen:
            self._seen, self._moved_at, self._looks = seen, self._clock(), 0
            return
        self._looks += 1
        stood_s = self._clock() - self._moved_at
        if stood_s > STALL_S and self._looks > LOOKS_LEAST:
            raise DemoFailed(f"{what}: {done:,} of {total:,}, and nothing has moved for {stood_s:.0f} s")
