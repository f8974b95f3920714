"""The relay's listener of agents that connect by WebSocket. It is apart from the dialer (websocket.py), because an
agent runs where memory is scarce and needs no HTTP server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ssl import SSLContext
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from drivers.wire.bounded_listener import BoundedListener, ConnectionLimits, peer_of
from drivers.wire.links import BACKLOG_BYTES_MAX, Link
from drivers.wire.protocol import MAX_UP_BYTES
from drivers.wire.websocket import CLOSE_S, PATH, SocketLink, framed

logger = logging.getLogger(__name__)

ASK_S = 10.0
"""Timeout of the headers of an agent's request."""
LIMITS = ConnectionLimits()

Serve = Callable[[Link, str], Awaitable[None]]
"""Serves a link that may speak for the given DPU only; for any DPU if the name is empty."""


class Admit(Protocol):
    """The admission check for a link of an identity (one DPU, or an identity that DPUs share): returns 0 to admit it,
    or the seconds until a retry."""

    def __call__(self, who: str, *, is_one_dpu: bool) -> float: ...


class PeerIdentity(NamedTuple):
    """The identity in the certificate of a connection's peer."""

    dpu: str
    """The only DPU that this link may speak for; empty for any DPU."""
    principal: str = ""
    """The principal in the certificate; empty without one."""


PEER_IDENTITY = web.RequestKey("peer_identity", PeerIdentity)
_ANONYMOUS = PeerIdentity("")


class _LastFramed:
    """Frames messages and caches the last one: a fan-out sends one message object to all links."""

    def __init__(self) -> None:
        self._message = b""
        self._framed = framed(b"")

    def __call__(self, message: bytes) -> bytes:
        if message is not self._message:
            self._message, self._framed = message, framed(message)
        return self._framed


class AgentListener:
    """Listens for agents, and serves GET requests of other processes on the same address."""

    def __init__(
        self,
        serve: Serve,
        admit: Admit,
        *,
        host: str,
        port: int,
        ssl: SSLContext | None = None,
        pages: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] | None = None,
        middlewares: Iterable[Any] = (),
        limits: ConnectionLimits = LIMITS,
    ) -> None:
        self.port = port
        self._serve = serve
        self._admit = admit
        self._frame = _LastFramed()
        application = web.Application(middlewares=middlewares)
        self._links: set[SocketLink] = set()
        application.router.add_get(PATH, self._accept)
        for path, page in (pages or {}).items():
            application.router.add_get(path, page)
        self.listener = BoundedListener(self._connection, host, port, limits=limits, ssl=ssl)
        """The listener, whose counters are metrics."""
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=2 * CLOSE_S, keepalive_timeout=ASK_S
        )

    async def __aenter__(self) -> AgentListener:
        await self._runner.setup()
        _, self.port = await self.listener.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Tell agents about the shutdown, so that they dial another relay. aiohttp would wait for them to disconnect,
        then abort them.
        """
        self.listener.stop()
        await asyncio.gather(*(link.leave() for link in self._links))
        await self._runner.cleanup()

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._runner.server is not None
        return self._runner.server()

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None or transport.is_closing():
            return web.Response(status=408)  # during a reconnection of many agents, many have timed out by now
        identity, address = request.get(PEER_IDENTITY, _ANONYMOUS), str(request.remote)
        who = identity.principal or peer_of((address,))
        if wait_s := self._admit(who, is_one_dpu=bool(identity.dpu)):
            reason = "the relay accepts no new agents at present"
            return web.Response(status=503, text=reason, headers={"Retry-After": f"{wait_s:.3f}"})
        socket = web.WebSocketResponse(max_msg_size=2 * MAX_UP_BYTES, compress=False, timeout=CLOSE_S, autoping=False)
        try:
            await socket.prepare(request)
        except ConnectionError as error:
            logger.info("agent disconnected during the handshake: %s", error, extra={"peer": who})
            return web.Response(status=408)
        link = SocketLink(socket, transport, identity.principal or address, self._frame, BACKLOG_BYTES_MAX)
        self._links.add(link)
        try:
            await self._serve(link, identity.dpu)
        finally:
            self._links.discard(link)
        return socket
