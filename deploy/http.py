"""HTTP of a process: /metrics for Prometheus, /healthz (it lives), /readyz (it has caught up), and what it is given.

What others have to show over HTTP they bring as routes, so that this file knows nothing of them. With `security`, TLS
and certificates: `deploy.tls.doors` says which paths are for whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ssl import SSLContext

from aiohttp import web
from aiohttp.typedefs import Middleware

from deploy.metrics.exposition import CONTENT_TYPE, Exposition
from deploy.settings import Address


class HttpServer:
    """Serves until its context ends. `unready` says why the process cannot serve yet, or nothing once it can."""

    def __init__(
        self,
        listen: Address,
        exposition: Exposition,
        unready: Callable[[], str],
        routes: Iterable[web.AbstractRouteDef] = (),
        security: tuple[SSLContext, Middleware] | None = None,
    ) -> None:
        self._listen = listen
        self._ssl = None if security is None else security[0]
        middlewares = [] if security is None else [security[1]]
        self._exposition = exposition
        self._unready = unready
        application = web.Application(middlewares=middlewares)
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *routes,
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> Address:
        """Listen; returns the address bound. Raises OSError if it cannot."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._listen.host, self._listen.port, ssl_context=self._ssl)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return Address(host, port)

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=await self._exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._unready()
        return web.Response(status=503, text=f"{reason}\n") if reason else web.Response(text="ok\n")
