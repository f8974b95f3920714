"""Transfers of images to simulated devices from a server that has no place for a connection at first."""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from drivers.backends.simulated_transfers import ImageTransfers
from tests.support.child_programs import free_ports
from tests.support.eventually import until


async def test_a_transfer_connects_again_while_the_server_refuses_connections_or_is_busy() -> None:
    statuses = [503, 404]

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=statuses.pop(0))

    (port,) = free_ports("127.0.0.1", 1)
    transfers = ImageTransfers(ssl.create_default_context)
    running = asyncio.create_task(transfers.run())
    received = transfers.begin(f"http://127.0.0.1:{port}/image")
    await asyncio.sleep(0.5)
    assert not received.is_done
    app = web.Application()
    app.router.add_get("/image", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        await until(lambda: received.is_done)
        assert received.fault == "image: the server returned HTTP status 404"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()
