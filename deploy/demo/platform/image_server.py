"""The web server from which the plane of the demo downloads its images: small, valid BFB files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random

from aiohttp import web

from drivers.images.bfb import made_bfb

HOST = "127.0.0.1"
IMAGE_BYTES = 200_000


def _only_doca(version: str) -> Mapping[str, str]:
    return {"doca": version}


@asynccontextmanager
async def serving(
    images: Mapping[str, str], rng: Random, *, inventory_of: Callable[[str], Mapping[str, str]] = _only_doca
) -> AsyncIterator[str]:
    """Serve images by name, each with its version. Yields a URL with a place for a name."""
    files = {
        f"/{name}.bfb": made_bfb([(1, rng.randbytes(IMAGE_BYTES))], inventory_of(version))
        for name, version in images.items()
    }

    async def handle(request: web.Request) -> web.Response:
        found = files.get(request.path)
        return web.Response(status=404) if found is None else web.Response(body=found)

    app = web.Application()
    app.router.add_get("/{name}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://{HOST}:{port}/{{}}.bfb"
    finally:
        await runner.cleanup()
