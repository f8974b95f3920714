"""The HTTP server of a process: /metrics for Prometheus, /healthz (alive), /readyz (caught up), and given routes.

Other parts pass their pages as routes, so that this module does not depend on them. With `security`, the server uses
TLS; `deploy.tls.auth_middleware` controls access by path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from ssl import SSLContext

from aiohttp import web
from aiohttp.typedefs import Middleware

from deploy.settings.settings import Address
from deploy.web.metrics.exposition import CONTENT_TYPE, Exposition
from drivers.wire.bounded_listener import BoundedListener, ConnectionLimits

IDLE_S = 20.0
"""Maximum time of a connection without a request: until the headers of the first request are complete, and between two
requests. Prometheus scrapes every 15 s and keeps its connection.
"""
LIMITS = ConnectionLimits(most=500, per_address=125)
"""A browser opens up to six connections; the page uses one of them for its feed."""


class HttpServer:
    """Serves from `start` to `stop`. `unready` returns why the process cannot serve yet; empty if it can."""

    def __init__(
        self,
        listen: Address,
        exposition: Exposition,
        unready: Callable[[], str],
        *,
        routes: Iterable[web.AbstractRouteDef] = (),
        security: tuple[SSLContext, Middleware] | None = None,
        limits: ConnectionLimits = LIMITS,
        notes: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        middlewares = [] if security is None else [security[1]]
        self._exposition = exposition
        self._unready = unready
        self._notes = notes
        application = web.Application(middlewares=middlewares)
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *routes,
            ]
        )
        ssl = None if security is None else security[0]
        self.listener = BoundedListener(self._connection, *listen, limits=limits, ssl=ssl)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=IDLE_S,
            handler_cancellation=True,  # do not finish a response after its client has disconnected
        )

    async def start(self) -> Address:
        """Start to listen; returns the bound address. Raises OSError."""
        await self._runner.setup()
        return Address(*await self.listener.start())

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._runner.server is not None
        return self._runner.server()

    async def stop(self) -> None:
        self.listener.stop()
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._unready()
        if reason:
            return web.Response(status=503, text=f"{reason}\n")
        return web.Response(text="\n".join(["ok", *self._notes(), ""]))
