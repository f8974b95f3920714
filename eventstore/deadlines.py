"""Deadlines of many futures, with one timer for all of them.

Nearly every future is done long before its deadline. With a timer per future, nearly every command would create,
start and cancel two timers that never fire. The deadlines form a heap instead. Futures that are done stay in the heap
until their deadlines, or until they outnumber the waiting ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, TypeAlias

MakeError: TypeAlias = Callable[[], Exception]
"""Makes the error of a future whose deadline has passed."""

_ROUNDING_S = 0.001
"""Tolerance for the rounding of timers: event loops round them to milliseconds, up or down."""

_DROPPED_MAX = 100
"""The done futures are removed from the heap when they outnumber the waiting ones by more than this."""


class Deadlines:
    """Fails futures that are not done in time."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], MakeError] = {}
        self._heap: list[tuple[float, int, asyncio.Future[Any]]] = []
        self._ticket = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = inf

    def put(self, future: asyncio.Future[Any], timeout_s: float, make_error: MakeError) -> None:
        """Fail the future with the error of `make_error` at its deadline. The caller passes the future to `drop` when
        it is done.

        Put each future once.
        """
        until_s = asyncio.get_running_loop().time() + timeout_s
        self._waiting[future] = make_error
        heappush(self._heap, (until_s, next(self._ticket), future))
        if len(self._heap) > 2 * len(self._waiting) + _DROPPED_MAX:
            self._remove_dropped()
        if until_s < self._timer_s:
            self._set_timer(until_s)

    def drop(self, future: asyncio.Future[Any]) -> None:
        """Drop a future that is done. The timer stays: the next future will need one."""
        self._waiting.pop(future, None)

    def _remove_dropped(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
        heapify(self._heap)

    def _set_timer(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = until_s
        self._timer = asyncio.get_running_loop().call_at(until_s, self._expire)

    def _expire(self) -> None:
        now_s = asyncio.get_running_loop().time() + _ROUNDING_S
        heap, waiting = self._heap, self._waiting
        while heap and (heap[0][0] <= now_s or heap[0][2] not in waiting):
            future = heappop(heap)[2]
            make_error = waiting.pop(future, None)
            if make_error is not None and not future.done():
                future.set_exception(make_error())
        self._timer_s = inf
        if heap:
            self._set_timer(heap[0][0])
