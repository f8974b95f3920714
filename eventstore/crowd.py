"""How long a batch of appends waits for more: callers of a crowd come back one by one, and each sync should be for all.

Many callers, each waiting for its answer, come back as fast as the loop serves them. If the first of them is synced at
once, each sync and fold is for two or three, and costs so much that no more than that have come when it is done: 200
callers were stuck there. So the size of the last batch alone says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LOOK_S = 0.001
_QUIET_EACH_S = 0.0002
_QUIET_MAX_S = 0.005
"""A batch that nobody joined for so long is committed: as long as each of a crowd takes, and no longer than this."""
_GATHER_EACH_S = 0.0004
_GATHER_MIN_S = 0.02
_GATHER_MAX_S = 0.08
"""A batch is committed by then though there are still some who join it: while it takes to serve each of a crowd."""
_CROWD_S = 1.0


class Crowd:
    """How many append at once: `size`, the most of a second, the last one in which anybody did.

    A batch of `enough` waits for nobody else. That is twice as many while a crowd grows: those who were served together
    come back together, and if the next batch were closed at their number, each would find only a few more.
    """

    __slots__ = ("_until_s", "enough", "size")

    def __init__(self) -> None:
        self.size = self.enough = 1
        self._until_s = 0.0

    def see(self, size: int, now_s: float) -> None:
        """A batch was written; with those who wait for the next one, so many append."""
        is_growing = size > self.size
        if size >= self.size or now_s >= self._until_s:
            self.size, self._until_s = size, now_s + _CROWD_S
        self.enough = 2 * self.size if is_growing else self.size

    @property
    def quiet_s(self) -> float:
        """How long the next batch waits for one more."""
        return min(self.size * _QUIET_EACH_S, _QUIET_MAX_S) if self.size > 1 else 0.0

    @property
    def gather_s(self) -> float:
        """How long the next batch waits at most."""
        return min(max(self.size * _GATHER_EACH_S, _GATHER_MIN_S), _GATHER_MAX_S)


async def gather(crowd: Crowd, waiting: Callable[[], int], is_full: Callable[[], bool]) -> None:
    """Wait for others to join the next batch, as long as they keep coming, unless whoever appends is alone.

    `waiting` says how many of the crowd have come, `is_full` whether the batch would take no more of them.
    """
    clock = asyncio.get_running_loop().time
    began_s = grown_s = clock()
    quiet_s, until_s = crowd.quiet_s, began_s + crowd.gather_s
    seen = waiting()
    while seen < crowd.enough and not is_full() and clock() < min(grown_s + quiet_s, until_s):
        await asyncio.sleep(_LOOK_S)
        if (come := waiting()) > seen:
            seen, grown_s = come, clock()
