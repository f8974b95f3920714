"""Connections between protocols of asyncio on a virtual clock, without sockets: bytes arrive in order and delayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

LatencyS = Callable[[], float]


class Listener(NamedTuple):
    """What accepts connections at a path. `accept` makes the protocol of a connection, or raises OSError."""

    accept: Callable[[], asyncio.Protocol]
    latency_s: LatencyS


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, protocol: asyncio.BaseProtocol, latency_s: LatencyS) -> None:
        super().__init__()
        self.other: MemoryTransport = self
        self._protocol = protocol
        self._latency_s = latency_s
        self._loop = asyncio.get_running_loop()
        self._arrives_at = 0.0
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._is_closing and data:
            self._at_other_end(self.other._deliver, bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close the connection. The other end gets what was written before, and then its end."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._at_other_end(self.other.close)

    def abort(self) -> None:
        self.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def _at_other_end(self, callback: Callable[..., None], *args: object) -> None:
        """Call at the other end, after everything that was sent before."""
        self._arrives_at = max(self._arrives_at, self._loop.time() + self._latency_s())
        self._loop.call_at(self._arrives_at, callback, *args)

    def _deliver(self, data: bytes) -> None:
        if not self._is_closing:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)


def connect(listener: Listener, protocol: asyncio.BaseProtocol) -> MemoryTransport:
    """A new connection of this protocol with a listener."""
    accepted = listener.accept()
    near, far = MemoryTransport(protocol, listener.latency_s), MemoryTransport(accepted, listener.latency_s)
    near.other, far.other = far, near
    accepted.connection_made(far)
    protocol.connection_made(near)
    return near
