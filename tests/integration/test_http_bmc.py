"""Simulated BMCs over real sockets: the same device, the same errors, and malformed responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest
from aiohttp import web

from drivers.backends.bmc import Bmc, NeedsOperator, SessionEnded, TaskFailed, Unreachable, by_scheme
from drivers.backends.http_bmc import application, http_connect
from drivers.backends.simulated_bmc import WORK_S, BmcFaults, SimulatedBmcs

FAST = BmcFaults(latency_s=0.0, pace=0.01, no_images=frozenset({"missing"}))


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(bmcs: SimulatedBmcs, name: str = "d") -> AsyncIterator[Bmc]:
    async with listening(application(bmcs.device)) as base, aiohttp.ClientSession() as session:
        yield http_connect(session)(f"{base}/{name}")


def simulated() -> SimulatedBmcs:
    return SimulatedBmcs(
        now_s=asyncio.get_running_loop().time, rng=Random(1), faults=FAST, serial_of=lambda name: f"SN-{name}"
    )


async def test_a_device_is_opened_changed_and_read() -> None:
    bmcs = simulated()
    async with connected(bmcs) as bmc:
        assert (await bmc.open(1)).serial == "SN-d"
        task = await bmc.start(1, "install", "image-1")
        assert (task.action, task.token, task.state) == ("install", 1, "running")
        await bmc.cancel(1, task.id)
        again = await bmc.start(1, "install", "image-1")
        while (device := await bmc.read(1)).tasks[-1].state == "running":
            await asyncio.sleep(WORK_S["install"] * FAST.pace / 4)
        assert [(t.id, t.state) for t in device.tasks] == [(task.id, "cancelled"), (again.id, "done")]
        assert device.image == bmcs.device("d").image == "image-1"


async def test_errors_keep_their_kind_and_text() -> None:
    bmcs = simulated()
    async with connected(bmcs) as bmc:
        await bmc.open(7)
        with pytest.raises(SessionEnded, match="attempt 7"):
            await bmc.read(6)
        with pytest.raises(NeedsOperator, match="'missing' does not exist on the device"):
            await bmc.start(7, "install", "missing")
        await bmc.start(7, "install", "image-1")
        with pytest.raises(Unreachable, match="in progress"):
            await bmc.start(7, "reboot", "")


async def test_an_address_without_a_listener_is_unreachable() -> None:
    async with listening(web.Application()) as base:
        pass
    async with aiohttp.ClientSession() as session:
        with pytest.raises(Unreachable, match="did not respond"):
            await http_connect(session)(f"{base}/d").open(1)


@pytest.mark.parametrize(
    "answer", [b'{"serial": 7}', b'{"serial": "\xff"}', pytest.param(b'{"beside": ' + b"[" * 100_000, id="nested")]
)
async def test_a_malformed_response_is_a_failure_of_the_device(answer: bytes) -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(body=answer)

    app = web.Application()
    app.router.add_post("/d/open", nonsense)
    async with listening(app) as base, aiohttp.ClientSession() as session:
        bmc = http_connect(session)(f"{base}/d")
        with pytest.raises(TaskFailed, match="invalid open"):
            await bmc.open(1)
        with pytest.raises(TaskFailed, match="404"):
            await bmc.read(1)


async def test_a_response_in_pieces_is_read_to_its_end() -> None:
    async def piecemeal(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for byte in b'["SN-d","image-1","boot-1",[]]':
            await response.write(bytes([byte]))
            await asyncio.sleep(0.001)
        return response

    app = web.Application()
    app.router.add_post("/d/open", piecemeal)
    async with listening(app) as base, aiohttp.ClientSession() as session:
        assert (await http_connect(session)(f"{base}/d").open(1)).image == "image-1"


async def test_an_endless_response_is_cut() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 16))

    app = web.Application()
    app.router.add_post("/d/open", endless)
    async with listening(app) as base, aiohttp.ClientSession() as session:
        with pytest.raises(TaskFailed, match="more than 1048576 bytes"):
            await http_connect(session)(f"{base}/d").open(1)


async def test_a_malformed_call_is_refused() -> None:
    async with listening(application(simulated().device)) as base, aiohttp.ClientSession() as session:
        no_utf8, nested = b'{"token": 1, "action": "\xff"}', b'{"beside": ' + b"[" * 50_000
        for body in (b"", b"[]", b'{"token": "x"}', b'{"token": 1, "action": "explode"}', no_utf8, nested):
            async with session.post(f"{base}/d/start", data=body) as response:
                assert response.status == 422
        async with session.post(f"{base}/d/open", data=b"x" * (1 << 17)) as response:
            assert response.status == 413


def test_the_scheme_of_an_address_selects_its_backend() -> None:
    made: list[str] = []

    def connect(address: str) -> Bmc:
        made.append(address)
        raise NeedsOperator("known")

    by_name = by_scheme({"http": connect, "simulated": connect})
    for address in ("http://h/d", "simulated:d"):
        with pytest.raises(NeedsOperator, match="known"):
            by_name(address)
    for address in ("ftp://h/d", "simulated", ""):
        with pytest.raises(NeedsOperator, match="must begin with one of http:, simulated:"):
            by_name(address)
    assert made == ["http://h/d", "simulated:d"]
