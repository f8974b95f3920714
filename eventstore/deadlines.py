"""Deadlines of many who wait, with one timer for all of them.

Nearly everybody has an answer long before. A timer of its own is made, started, cancelled and closed by the loop then,
all for nothing, and every command had two of them. In an outage nobody has, and deadlines pass one by one: so they are
a heap, in which those who are done stay until their time has come, or until they are more than those who wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeAlias

Late: TypeAlias = Callable[[], Exception]
"""Makes the error of somebody whose time is up."""

_ROUNDING_S = 0.001
"""Loops round timers to milliseconds, up or down."""

_DROPPED_MAX = 100
"""How many more may be in the heap who are done than who wait."""


class Deadlines:
    """Fails futures that are not done in time."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], Late] = {}
        self._heap: list[tuple[float, int, asyncio.Future[Any]]] = []
        self._ticket = count()
        self._timer: asyncio.TimerHandle | None = None
        self._look_s = inf

    def put(self, future: asyncio.Future[Any], timeout_s: float, late: Late) -> None:
        """The future fails with what `late` makes, unless it is done by then. Give it to `drop` when it is.

        A future is put once.
        """
        until_s = asyncio.get_running_loop().time() + timeout_s
        self._waiting[future] = late
        heappush(self._heap, (until_s, next(self._ticket), future))
        if len(self._heap) > 2 * len(self._waiting) + _DROPPED_MAX:
            self._let_go_of_dropped()
        if until_s < self._look_s:
            self._look_at(until_s)

    def drop(self, future: asyncio.Future[Any]) -> None:
        """Nobody waits for this any more. The timer stays: whoever comes next will need one."""
        self._waiting.pop(future, None)

    def _let_go_of_dropped(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
        heapify(self._heap)

    def _look_at(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_s = until_s
        self._timer = asyncio.get_running_loop().call_at(until_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time() + _ROUNDING_S
        heap, waiting = self._heap, self._waiting
        while heap and (heap[0][0] <= now_s or heap[0][2] not in waiting):
            future = heappop(heap)[2]
            late = waiting.pop(future, None)
            if late is not None and not future.done():
                future.set_exception(late())
        self._look_s = inf
        if heap:
            self._look_at(heap[0][0])
