"""How long an append batch lingers so that concurrent callers share one sync (compare Kafka's `linger.ms`).

Callers that wait for their answers append again one by one, as fast as the event loop serves them. Without a linger,
each sync and fold would serve two or three callers, because only that many append again during one sync. 200 callers
stayed in this state. So the size of the last batch alone does not tell the number of callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_POLL_S = 0.001
_IDLE_EACH_S = 0.0002
_IDLE_MAX_S = 0.005
"""Idle limit: a batch is committed when no append joined it for this long. The first value counts per caller, the
second is the maximum.
"""
_LINGER_EACH_S = 0.0004
_LINGER_MIN_S = 0.02
_LINGER_MAX_S = 0.08
"""A batch is committed after this long even if appends still join it. The first value counts per caller, between the
other two.
"""
_REMEMBERED_S = 1.0


class Linger:
    """How long the next batch lingers, by the number of concurrent callers.

    `size` is that number: the maximum in the last second that had an append. A batch of `enough` appends does not wait
    for more. `enough` is twice the size while the number of callers grows: callers that were served together append
    together, and a batch closed at their number would grow by only a few callers each time.
    """

    __slots__ = ("_until_s", "enough", "size")

    def __init__(self) -> None:
        self.size = self.enough = 1
        self._until_s = 0.0

    def observe(self, size: int, now_s: float) -> None:
        """Record that a batch was written. `size` is its appends plus those queued for the next batch."""
        is_growing = size > self.size
        if size >= self.size or now_s >= self._until_s:
            self.size, self._until_s = size, now_s + _REMEMBERED_S
        self.enough = 2 * self.size if is_growing else self.size

    @property
    def idle_s(self) -> float:
        """How long the next batch waits for one more append."""
        return min(self.size * _IDLE_EACH_S, _IDLE_MAX_S) if self.size > 1 else 0.0

    @property
    def max_s(self) -> float:
        """How long the next batch waits in total, at most."""
        return min(max(self.size * _LINGER_EACH_S, _LINGER_MIN_S), _LINGER_MAX_S)


async def wait_for_batch(linger: Linger, waiting: Callable[[], int], is_full: Callable[[], bool]) -> None:
    """Wait while more appends join the next batch. A single caller does not wait.

    `waiting` returns how many appends are queued, `is_full` whether the batch takes no more.
    """
    clock = asyncio.get_running_loop().time
    began_s = grown_s = clock()
    idle_s, until_s = linger.idle_s, began_s + linger.max_s
    seen = waiting()
    while seen < linger.enough and not is_full() and clock() < min(grown_s + idle_s, until_s):
        await asyncio.sleep(_POLL_S)
        if (come := waiting()) > seen:
            seen, grown_s = come, clock()
