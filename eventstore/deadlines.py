"""Deadlines of many who wait, with one timer for all of them.

Nearly everybody has an answer long before. A timer of its own is made, started, cancelled and closed by the loop then,
all for nothing, and every command had two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

Late: TypeAlias = Callable[[], Exception]
"""Makes the error of somebody whose time is up."""

_ROUNDING_S = 0.001
"""Loops round timers to milliseconds, up or down."""


class Deadlines:
    """Fails futures that are not done in time."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], tuple[float, Late]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = inf

    def put(self, future: asyncio.Future[Any], timeout_s: float, late: Late) -> None:
        """The future fails with what `late` makes, unless it is done by then. Give it to `drop` when it is."""
        until_s = asyncio.get_running_loop().time() + timeout_s
        self._waiting[future] = (until_s, late)
        if until_s < self._look_s:
            self._look_at(until_s)

    def drop(self, future: asyncio.Future[Any]) -> None:
        """Nobody waits for this any more. The timer stays: whoever comes next will need one."""
        self._waiting.pop(future, None)

    def _look_at(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_s = until_s
        self._timer = asyncio.get_running_loop().call_at(until_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time() + _ROUNDING_S
        for future, (until_s, late) in [*self._waiting.items()]:
            if until_s <= now_s:
                del self._waiting[future]
                if not future.done():
                    future.set_exception(late())
        self._look_s = inf
        if self._waiting:
            self._look_at(min(until_s for until_s, _ in self._waiting.values()))
