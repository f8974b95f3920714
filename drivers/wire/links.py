"""The agent link as both ends use it: ordered messages until it closes. Includes the transport within one process.

`send` never waits: a relay serves a thousand agents in one loop, and no agent may delay the others. `backlog` is the
number of bytes that the peer has not taken. A sender must check it and stop in time; a relay then sends one merged
delta instead of every version. A link with a backlog above the hard limit is aborted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from eventstore.errors import TransientError

BACKLOG_BYTES_MAX = 160 * 1024 * 1024
"""Backlog above which a link is aborted: two of the largest messages and some small ones."""


class LinkClosed(TransientError):
    """The peer has closed the link, or it was closed here."""


class Busy(TransientError):
    """The relay accepts no new links now; retry after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Link(Protocol):
    """One end of a link."""

    @property
    def peer(self) -> str:
        """The name of the peer, for logs."""
        ...

    def send(self, message: bytes) -> None:
        """Queue a message without waiting. Raises LinkClosed."""
        ...

    @property
    def backlog(self) -> int:
        """Queued bytes that the peer has not taken."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises LinkClosed after the last one, and ProtocolError for an invalid one."""
        ...

    def abort(self) -> None:
        """Abort the link at once; `receive` raises LinkClosed."""
        ...

    async def close(self) -> None:
        """Close the link after the queued messages, within seconds."""
        ...


Dial = Callable[[str], Awaitable[Link]]
"""Opens a link to the relay at an address. Raises LinkClosed on failure, Busy if the relay refuses new links."""


class _MemoryLink:
    """One end of a link within a process."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.other: _MemoryLink = self
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    @property
    def backlog(self) -> int:
        return self.other._inbox_bytes

    def send(self, message: bytes) -> None:
        if self._closed or self.other._closed:
            raise LinkClosed(f"the link to {self.peer} is closed")
        if self.backlog + len(message) > BACKLOG_BYTES_MAX:
            self.abort()
            raise LinkClosed(f"the link to {self.peer} was dropped: the peer left {self.backlog} bytes unread")
        self.other._inbox.append(message)
        self.other._inbox_bytes += len(message)
        self.other._awake()

    async def receive(self) -> bytes:
        while not self._inbox or self._closed:
            if self._closed or self.other._closed:
                raise LinkClosed(f"the link to {self.peer} is closed")
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message)
        return message

    def abort(self) -> None:
        self._closed = True
        self._awake()
        self.other._awake()

    async def close(self) -> None:
        self.abort()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def memory_link_pair(relay: str, agent: str) -> tuple[Link, Link]:
    """The relay's and the agent's end of a new link within this process; the arguments are their names for logs."""
    relays, agents = _MemoryLink(agent), _MemoryLink(relay)
    relays.other, agents.other = agents, relays
    return relays, agents
