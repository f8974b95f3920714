"""A real HTTPS server of charts: a repository with its index, and a registry that gives tokens to everybody."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from deploy.tls.self_signed import self_signed, server_context

TOKEN = "a-token-for-everybody"


class ChartServer:
    """`index` is the index of the repository, `files` are its charts. `manifests` are those of the registry, by the end
    of their path. `answers` are statuses of the next responses, and `redirects_to` is where they lead. With
    `user`, index and tokens are for this value of the header Authorization only; with `takes_basic` manifests are, too.
    """

    def __init__(self) -> None:
        self.index = b""
        self.files: dict[str, bytes] = {}
        self.manifests: dict[str, dict[str, Any]] = {}
        self.answers: list[int] = []
        self.redirects_to = ""
        self.stalls = False
        self.needs_token = True
        self.user = ""
        self.takes_basic = False
        self.requests: Counter[str] = Counter()
        self.authorizations: list[str] = []
        self.address = ""

    @property
    def repository(self) -> str:
        return f"https://{self.address}/charts"

    @property
    def registry(self) -> str:
        return f"oci://{self.address}/nvidia/charts"

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        self.requests["index"] += 1
        if self.stalls:
            await asyncio.sleep(3_600)
        return self._unusual() or self._stranger(request) or web.Response(body=self.index)

    async def handle_file(self, request: web.Request) -> web.StreamResponse:
        self.requests["file"] += 1
        found = self.files.get(request.match_info["name"])
        return web.Response(body=found) if found is not None else web.Response(status=404)

    async def handle_manifest(self, request: web.Request) -> web.StreamResponse:
        self.requests["manifest"] += 1
        given = request.headers.get("Authorization", "")
        self.authorizations.append(given)
        if self.takes_basic:
            if (refused := self._stranger(request)) is not None:
                refused.headers["WWW-Authenticate"] = 'Basic realm="charts"'
                return refused
        elif self.needs_token and given != f"Bearer {TOKEN}":
            challenge = f'Bearer realm="https://{self.address}/token",service="charts",scope="repository:a:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        found = self.manifests.get(request.match_info["name"])
        return self._unusual() or (web.json_response(found) if found is not None else web.Response(status=404))

    async def handle_token(self, request: web.Request) -> web.StreamResponse:
        self.requests["token"] += 1
        assert dict(request.query) == {"service": "charts", "scope": "repository:a:pull"}
        return self._stranger(request) or web.json_response({"token": TOKEN})

    def _stranger(self, request: web.Request) -> web.Response | None:
        """The refusal of anybody but the user."""
        is_user = request.headers.get("Authorization", "") == self.user or not self.user
        return None if is_user else web.Response(status=401)

    def _unusual(self) -> web.Response | None:
        if self.redirects_to:
            return web.Response(status=302, headers={"Location": self.redirects_to})
        return web.Response(status=self.answers.pop(0)) if self.answers else None


@asynccontextmanager
async def serving_charts(folder: Path) -> AsyncIterator[tuple[ChartServer, aiohttp.ClientSession]]:
    """A server, and a session that trusts its certificate."""
    server = ChartServer()
    cert, key = self_signed(folder, ["localhost", "127.0.0.1"], datetime.now(UTC))
    app = web.Application()
    app.router.add_get("/charts/index.yaml", server.handle_index)
    app.router.add_get("/charts/{name}", server.handle_file)
    app.router.add_get("/v2/nvidia/charts/{name:.+}", server.handle_manifest)
    app.router.add_get("/token", server.handle_token)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(cert, key))
    await site.start()
    server.address = f"127.0.0.1:{runner.addresses[0][1]}"
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(cert)))
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            yield server, session
    finally:
        await runner.cleanup()
