"""How long an append batch lingers so that concurrent callers share one sync (compare Kafka's `linger.ms`).

Callers that wait for their answers append again one by one, as fast as the event loop serves them. Without a linger,
each sync and fold would serve two or three callers, because only that many append again during one sync. A log with
200 callers stayed in this state. So the size of the last batch alone does not tell the number of callers.
"""

from __future__ import annotations

import asyncio

_IDLE_EACH_S = 0.0002
_IDLE_MIN_S = 0.001
_IDLE_MAX_S = 0.005
"""Idle limit: a batch is committed when no append joined it for this long. The limit is `_IDLE_EACH_S` times the number
of callers, but not below the minimum or above the maximum.
"""
_LINGER_EACH_S = 0.0004
_LINGER_MIN_S = 0.02
_LINGER_MAX_S = 0.08
"""Total limit: a batch is committed after this long even if appends still join it. The limit is `_LINGER_EACH_S` times
the number of callers, but not below the minimum or above the maximum.
"""
_REMEMBERED_S = 1.0


class Linger:
    """How long the next batch lingers, by the number of concurrent callers.

    `size` is the number of concurrent callers: the maximum in the last second that had an append. A batch of `enough`
    appends does not wait for more. While the number of callers grows, `enough` is twice `size`. If it were `size`, a
    batch would close as soon as the callers of the last batch had appended again, and each batch would get only a few
    more callers.
    """

    __slots__ = ("_closed", "_joined_s", "_timer", "_until_s", "enough", "size")

    def __init__(self) -> None:
        self.size = self.enough = 1
        self._until_s = self._joined_s = 0.0
        self._closed: asyncio.Future[None] | None = None

    def observe(self, size: int, now_s: float) -> None:
        """Record that a batch was written. `size` is its appends plus those queued for the next batch."""
        is_growing = size > self.size
        if size >= self.size or now_s >= self._until_s:
            self.size, self._until_s = size, now_s + _REMEMBERED_S
        self.enough = 2 * self.size if is_growing else self.size

    @property
    def idle_s(self) -> float:
        """How long the next batch waits for one more append."""
        return min(max(self.size * _IDLE_EACH_S, _IDLE_MIN_S), _IDLE_MAX_S) if self.size > 1 else 0.0

    @property
    def max_s(self) -> float:
        """How long the next batch waits in total, at most."""
        return min(max(self.size * _LINGER_EACH_S, _LINGER_MIN_S), _LINGER_MAX_S)

    async def wait(self, waiting: int, *, is_full: bool) -> None:
        """Wait while more appends join the next batch, which has `waiting` appends. A single caller does not wait."""
        idle_s = self.idle_s
        if waiting >= self.enough or is_full or not idle_s:
            return
        loop = asyncio.get_running_loop()
        self._closed = loop.create_future()
        self._joined_s = loop.time()
        self._timer = loop.call_at(self._joined_s + idle_s, self._close_if_idle, self._joined_s + self.max_s)
        try:
            await self._closed
        finally:
            self._timer.cancel()
            self._closed = None

    def _close_if_idle(self, until_s: float) -> None:
        """Close the batch if its idle limit or its total limit is reached; otherwise check again at the earlier of the
        two."""
        assert self._closed is not None, "the timer is cancelled with the batch"
        loop = asyncio.get_running_loop()
        end_s = min(self._joined_s + self.idle_s, until_s)
        if loop.time() < end_s:
            self._timer = loop.call_at(end_s, self._close_if_idle, until_s)
        elif not self._closed.done():
            self._closed.set_result(None)

    def join(self, waiting: int, *, is_full: bool) -> None:
        """Record that an append joined the next batch, which now has `waiting` appends."""
        if self._closed is None:
            return
        self._joined_s = asyncio.get_running_loop().time()
        if (waiting >= self.enough or is_full) and not self._closed.done():
            self._closed.set_result(None)
