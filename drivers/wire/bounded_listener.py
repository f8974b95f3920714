"""A listener with limits on connections: in number, per peer address, and in the duration of a handshake.

A client needs no certificate to open connections. 1,000 idle connections used up the process's file limit and blocked
appends to the log. asyncio's server accepts without a limit and creates a protocol only after the TLS handshake, so a
limit in the protocol would miss connections that never finish it. This listener checks the limits before the handshake
and closes excess connections at once.

The kernel aborts a connection if its peer accepts none of the pending bytes for `stalled_s` (TCP_USER_TIMEOUT).
Otherwise a closing connection with unsent bytes would keep its file descriptor for as long as its peer likes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_network
from ssl import SSLContext
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

BACKLOG = 4096
ACCEPTS_AT_ONCE = 64
"""Maximum number of connections accepted in one iteration of the loop."""
PAUSE_S = 1.0
"""Pause of a listener that found no free file descriptor."""
_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


REFUSAL_REASONS = ("listener", "address", "handshake", "files")
"""Limits that refuse connections, as `BoundedListener.refused` counts them."""


class ConnectionLimits(NamedTuple):
    """Limits of one listener."""

    most: int = 10_000
    """Maximum open connections."""
    per_address: int = 2_500
    """Maximum open connections of one IPv4 address, or of one IPv6 network of 64 bits."""
    handshake_s: float = 10.0
    """Longest TLS handshake."""
    stalled_s: float = 60.0
    """A connection is aborted if its peer has accepted none of the pending bytes for this time."""


def peer_of(address: tuple[Any, ...]) -> str:
    """The peer for limits per address: an IPv4 address, or the 64-bit network of an IPv6 address."""
    host = str(address[0]).partition("%")[0]
    if ":" not in host:
        return host
    parsed = IPv6Address(host)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else str(ip_network((parsed, 64), strict=False))


class BoundedListener:
    """Accepts connections for `protocol` on every address of `host`. `refused` counts refused connections by the reason
    in REFUSAL_REASONS; under `files`, it counts the times at which the process could open no file.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        limits: ConnectionLimits,
        ssl: SSLContext | None = None,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.limits = limits
        self._protocol = protocol
        self._host = host
        self._port = port
        self._ssl = ssl
        self._sockets: list[socket.socket] = []
        self.connections = 0
        """Number of open connections, including those in their handshake."""
        self._by_peer: Counter[str] = Counter()
        self._handshakes: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, int]:
        """Start to listen; returns the first bound address. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_bound(socket.socket(family, kind, protocol), address))
        except OSError:
            self.stop()
            raise
        for listening in self._sockets:
            loop.add_reader(listening, self._accept, listening)
        host, self._port = self._sockets[0].getsockname()[:2]
        return host, self._port

    def stop(self) -> None:
        """Stop accepting and abort handshakes; open connections stay open."""
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for handshake in self._handshakes:
            handshake.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                self._pause(listening, error)
                return
            self._take(connection, peer_of(address))

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Stop accepting for a while. A connection that was not accepted stays in the kernel's queue, so the listening
        socket is readable again later."""
        self.refused["files"] += 1
        logger.error(
            "connections not accepted for %g s, raise the limit of open files: %s",
            PAUSE_S,
            error.strerror,
            extra={"peer": ""},
        )
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _take(self, connection: socket.socket, peer: str) -> None:
        limit = self._limit_reached(peer)
        if limit:
            connection.close()
            self.refused[limit] += 1
            most = self.limits.most if limit == "listener" else self.limits.per_address
            reason = f"the {limit} has {most} connections, its limit"
            logger.warning(
                "connection closed: the connection limit is reached",
                extra={"peer": peer, "port": self._port, "reason": reason},
            )
            return
        self.connections += 1
        self._by_peer[peer] += 1
        handshake = asyncio.get_running_loop().create_task(self._establish(connection, peer))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    def _limit_reached(self, peer: str) -> str:
        if self.connections >= self.limits.most:
            return "listener"
        return "address" if self._by_peer[peer] >= self.limits.per_address else ""

    def release(self, peer: str) -> None:
        """Count the end of a connection of this peer."""
        self.connections -= 1
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]

    async def _establish(self, connection: socket.socket, peer: str) -> None:
        slot = _ConnectionSlot(self, peer)
        connection.setblocking(False)
        with suppress(OSError):  # the peer has already closed
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.limits.stalled_s * 1_000))
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _CountedConnection(self._protocol(), slot),
                connection,
                ssl=self._ssl,
                ssl_handshake_timeout=None if self._ssl is None else self.limits.handshake_s,
            )
        except OSError as error:  # includes TLS errors
            slot.release()
            self.refused["handshake"] += 1
            logger.info("handshake failed", extra={"peer": peer, "port": self._port, "reason": str(error)})
        except BaseException:
            slot.release()
            raise


class _ConnectionSlot:
    """One of the listener's connection slots, released exactly once."""

    __slots__ = ("_listener", "_peer")

    def __init__(self, listener: BoundedListener, peer: str) -> None:
        self._listener: BoundedListener | None = listener
        self._peer = peer

    def release(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.release(self._peer)


class _CountedConnection(asyncio.Protocol):
    """Passes all calls on to the protocol of a connection, and releases the connection's slot at its end."""

    __slots__ = ("_inner", "_slot")

    def __init__(self, inner: Any, slot: _ConnectionSlot) -> None:
        self._inner = inner
        self._slot = slot

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.release()
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        found: bool | None = self._inner.eof_received()
        return found

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def _bound(listening: socket.socket, address: Any) -> socket.socket:
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
