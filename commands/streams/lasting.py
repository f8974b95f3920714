"""Long-lived streams: a maximum of open streams, and the end of each after an hour or when the server stops.

A stream waits for its next item inside `wait`, which ends when the server stops. Otherwise each stop would take its
whole grace period: a stream that follows the log never ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from commands.rpc.limits import LimitExceeded
from eventstore.errors import LogUnavailable

T = TypeVar("T")

STREAM_S_MAX = 3_600.0
"""Maximum duration of one stream. A client continues with a new stream, whose permission is checked again."""


class StreamEnded(Exception):
    """The time of a stream is over; it ends without an error."""


class LastingStreams:
    """All lasting streams of one server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waits: set[asyncio.Timeout] = set()
        self._is_stopping = False
        self.open = 0

    @contextmanager
    def opened(self) -> Iterator[float]:
        """Count a stream while it is open; the result is the loop's time at which it must end. Raises LimitExceeded,
        and LogUnavailable once the server stops."""
        self._check_running()
        if self.open >= self._most:
            raise LimitExceeded(f"streams: {self.open} open streams that follow the log are the limit of this server")
        self.open += 1
        try:
            yield asyncio.get_running_loop().time() + STREAM_S_MAX
        finally:
            self.open -= 1

    async def wait(self, next_item: Callable[[], Awaitable[T]], until_s: float) -> T:
        """The next item of a stream, asked for only while the server runs. Raises StreamEnded at `until_s`, and
        LogUnavailable once the server stops."""
        self._check_running()
        try:
            async with asyncio.timeout_at(until_s) as timeout:
                self._waits.add(timeout)
                try:
                    return await next_item()
                finally:
                    self._waits.discard(timeout)
        except TimeoutError:
            self._check_running()
            raise StreamEnded from None

    def stop(self) -> None:
        """End all streams, so that their clients continue at another server."""
        self._is_stopping = True
        now_s = asyncio.get_running_loop().time()
        for timeout in [*self._waits]:
            timeout.reschedule(now_s)

    def _check_running(self) -> None:
        if self._is_stopping:
            raise LogUnavailable("stream: this server is stopping; continue at another one")
