"""The health of a process over HTTP: liveness, and separately readiness."""

from __future__ import annotations

import aiohttp
from aiohttp import web

from deploy.settings.settings import Address
from deploy.web.http import HttpServer
from deploy.web.metrics.exposition import CONTENT_TYPE, Exposition


async def _extra(_request: web.Request) -> web.Response:
    return web.Response(text="what it was given")


async def test_a_process_is_ready_when_it_has_no_reason_not_to_be() -> None:
    unready = "the log is not folded yet"
    notes: list[str] = []
    routes = [web.get("/extra", _extra)]
    server = HttpServer(Address("127.0.0.1", 0), Exposition([]), lambda: unready, routes=routes, notes=lambda: notes)
    address = await server.start()
    try:
        async with aiohttp.ClientSession(f"http://{address}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/readyz") == (503, "the log is not folded yet\n")
            assert await get("/healthz") == (200, "ok\n"), "a process that is not ready is still alive"
            unready = ""
            assert await get("/readyz") == (200, "ok\n")
            notes.append("this host's clock was set")
            assert await get("/readyz") == (200, "ok\nthis host's clock was set\n"), "the process must be ready"
            unready = "a part of it failed"
            assert await get("/readyz") == (503, "a part of it failed\n")
            assert await get("/extra") == (200, "what it was given")
            async with session.get("/metrics") as answer:
                assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
    finally:
        await server.stop()
