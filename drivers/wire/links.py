"""The agent link as both ends see it: messages in order, until it breaks. And the engine within one process.

`send` never waits: a relay talks to a thousand agents in one loop, and none of them may hold up the others. What a peer
has not taken yet is its `backlog`; who sends must look at it and stop in time (a relay then owes that peer one merged
delta instead of every version). A link whose backlog passes the hard limit all the same is broken off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from eventstore.errors import TransientError

BACKLOG_BYTES_MAX = 160 * 1024 * 1024
"""What may wait for a peer before the link is broken off: two of the largest messages and some small ones."""


class LinkClosed(TransientError):
    """The peer is gone, or the link was closed here."""


class Busy(TransientError):
    """The relay takes no new links now; come back after `retry_after_s`."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Link(Protocol):
    """One end of a link."""

    @property
    def peer(self) -> str:
        """Whom this end talks to, for logs."""
        ...

    def send(self, message: bytes) -> None:
        """Hand over a message, without waiting. Raises LinkClosed."""
        ...

    @property
    def backlog(self) -> int:
        """Bytes handed over that the peer has not taken."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises LinkClosed once there are none and will be none, ProtocolError for no message."""
        ...

    def abort(self) -> None:
        """Break the link off at once; `receive` raises LinkClosed."""
        ...

    async def close(self) -> None:
        """End the link after what was sent, within seconds."""
        ...


Dial = Callable[[str], Awaitable[Link]]
"""Opens a link to the relay at an address. Raises LinkClosed if it cannot, Busy if the relay says so."""


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
    """The relay's and the agent's end of a new link within this process, with their names for logs."""
    relays, agents = _MemoryLink(agent), _MemoryLink(relay)
    relays.other, agents.other = agents, relays
    return relays, agents
