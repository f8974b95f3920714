"""Abuse by connections: many, idle, slow to shake hands, slow to send, slow to read. Other callers are still served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import grpc
import pytest
import uvloop
from aiohttp import web

from commands.rpc.limits import Limits
from deploy.host.file_limits import RESERVE, ConnectionLimitsPerListener, fit_connection_limits
from deploy.settings.settings import Address
from deploy.tls.security import Security
from deploy.web import http
from deploy.web.http import HttpServer
from deploy.web.metrics.exposition import Exposition
from drivers.wire.bounded_listener import BoundedListener, ConnectionLimits, peer_of
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.support.certs import CertIssuer
from tests.support.eventually import until
from tests.support.planes import DPUPLANE, run, serving
from tests.support.served import now_ms, served

FILES = 700
IDLE = 1_000
Loop = Callable[[], asyncio.AbstractEventLoop]


class Server(NamedTuple):
    """An HTTP listener and its address."""

    listener: BoundedListener
    address: Address


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runs(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a test on uvloop, which processes use, and on asyncio's own loop."""

    def run_it(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test)

    return run_it


async def _large(_request: web.Request) -> web.Response:
    return web.Response(body=bytes(64 << 20))


@asynccontextmanager
async def listening(limits: ConnectionLimits, security: Security | None = None) -> AsyncIterator[Server]:
    tls = None if security is None else security.http()
    routes = [web.get("/large", _large)]
    server = HttpServer(Address("127.0.0.1", 0), Exposition([]), lambda: "", routes=routes, security=tls, limits=limits)
    try:
        yield Server(server.listener, await server.start())
    finally:
        await server.stop()


def dialed(server: Server, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(server.address, timeout=60, source_address=(source, 0))


async def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed the connection. Waits for a byte or for the end."""
    try:
        return await asyncio.to_thread(connection.recv, 1) == b""
    except ConnectionError:
        return True


async def healthy(server: Server, source: str) -> bool:
    """Whether a client at another address gets a response."""
    connector = aiohttp.TCPConnector(local_addr=(source, 0))
    url = f"http://{server.address}/healthz"
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
        return answer.status == 200


def test_one_address_gets_a_limited_share_of_the_connections(runs: Any) -> None:
    async def test() -> None:
        async with listening(ConnectionLimits(most=6, per_address=3)) as server:
            one = [dialed(server) for _ in range(5)]
            await until(lambda: server.listener.refused["address"] == 2)
            assert await is_closed(one[3]) and await is_closed(one[4])
            assert await healthy(server, "127.0.0.2")
            two = [dialed(server, "127.0.0.3") for _ in range(4)]
            await until(lambda: server.listener.refused.total() >= 3)
            for connection in (*one, *two):
                connection.close()
            await until(lambda: server.listener.connections == 0)
            assert await healthy(server, "127.0.0.1")

    runs(test())


def test_a_full_listener_accepts_connections_again_when_others_close(runs: Any) -> None:
    async def test() -> None:
        async with listening(ConnectionLimits(most=4, per_address=2)) as server:
            held = [dialed(server, f"127.0.0.{number // 2 + 1}") for number in range(4)]
            await until(lambda: server.listener.connections == 4)
            assert await is_closed(dialed(server, "127.0.0.9"))
            assert server.listener.refused == {"listener": 1}
            held.pop().close()
            await until(lambda: server.listener.connections == 3)
            assert await healthy(server, "127.0.0.9")
            for connection in held:
                connection.close()

    runs(test())


def test_an_incomplete_handshake_times_out(runs: Any, tmp_path: Path) -> None:
    async def test() -> None:
        security = Security(CertIssuer(tmp_path / "certs").issue("plane/local").certificates, now_ms)
        async with listening(ConnectionLimits(handshake_s=0.2), security) as server:
            silent, babbling = dialed(server), dialed(server)
            babbling.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: server.listener.refused["handshake"] == 2)
            await until(lambda: server.listener.connections == 0)
            assert await is_closed(silent)
            context = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.pem"))
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"https://{server.address}/healthz", ssl=context) as answer,
            ):
                assert answer.status == 200

    runs(test())


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ids=["nothing", "half of the headers", "one request"],
)
def test_an_idle_connection_is_closed(runs: Any, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_S", 0.2)

    async def test() -> None:
        async with listening(ConnectionLimits()) as server:
            connection = dialed(server)
            connection.sendall(said)
            await until(lambda: server.listener.connections == 1)
            await until(lambda: server.listener.connections == 0)
            connection.close()

    runs(test())


def test_a_peer_that_does_not_read_its_response_is_disconnected(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a peer could otherwise keep its connection open without limit, even after a close."""
    monkeypatch.setattr(http, "IDLE_S", 0.2)

    async def test() -> None:
        async with listening(ConnectionLimits(stalled_s=1.0)) as server:
            connection = dialed(server)
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: server.listener.connections == 1)
            await until(lambda: server.listener.connections == 0)
            connection.close()

    runs(test())


def test_ipv6_addresses_are_limited_by_network() -> None:
    assert peer_of(("2001:db8:1:2::7", 1, 0, 0)) == peer_of(("2001:db8:1:2:ffff::8", 2, 0, 0)) == "2001:db8:1:2::/64"
    assert peer_of(("::ffff:10.0.0.1", 1, 0, 0)) == peer_of(("10.0.0.1", 1)) == "10.0.0.1"
    assert peer_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"


@pytest.mark.parametrize("files", [64, 256, 1_024, 4_096, 20_000, 65_536])
def test_connection_limits_leave_file_descriptors_for_the_log(files: int) -> None:
    wanted = ConnectionLimitsPerListener(500, 2_000, 10_000)
    found = fit_connection_limits(files, wanted)
    assert all(1 <= limit <= most for limit, most in zip(found, wanted, strict=True))
    assert files - sum(found) >= min(RESERVE, files // 2)
    assert (found == wanted) == (files >= sum(wanted) + RESERVE)


async def test_the_api_accepts_a_limited_number_of_connections(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=Limits(connections=5)) as plane:
        host, port = plane.address.rsplit(":", 1)
        joined = await plane.join("z", pb.NodeSpec(name="n0"))  # the channel of the test uses one connection
        assert joined.outcome == pb.OUTCOME_DONE
        held = [socket.create_connection((host, int(port)), timeout=60) for _ in range(12)]
        ended = await asyncio.gather(*(_is_closed_without_settings(connection) for connection in held))
        assert sum(ended) == 12 - 4
        assert (await plane.join("z", pb.NodeSpec(name="n1"))).outcome == pb.OUTCOME_DONE
        for connection in held:
            connection.close()


async def _is_closed_without_settings(connection: socket.socket) -> bool:
    """Whether the server closes a connection without the settings frame with which a gRPC server begins."""
    try:
        return not await asyncio.to_thread(connection.recv, 1)
    except ConnectionError:
        return True


async def test_a_thousand_idle_connections_leave_file_descriptors_for_the_log(tmp_path: Path) -> None:
    """Without limits the process ran out of file descriptors, and joins failed with `append not acknowledged`."""
    program = ("/bin/sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', DPUPLANE)
    async with serving("--data", str(tmp_path / "plane"), stderr=tmp_path / "errors", program=program) as plane:
        with ExitStack() as held:
            for listener in ("http", "agents"):
                host, port = plane.address(listener).rsplit(":", 1)
                for _ in range(IDLE):
                    held.enter_context(socket.create_connection((host, int(port)), timeout=90))
            for number in range(3):
                joined = await run("nodes", "join", f"n{number}", "--zone", "a", server=plane.address("api"))
                assert joined.status == 0, joined.stderr
            connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
            url = f"http://{plane.address('http')}/metrics"
            async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
                metrics = await answer.text()
    assert 'dpuplane_refused_connections_total{limit="address",listener="http"}' in metrics
    open_files = next(line for line in metrics.splitlines() if line.startswith("process_open_fds "))
    assert float(open_files.split()[1]) < FILES - 100
    assert b"append not acknowledged" not in (tmp_path / "errors").read_bytes()


async def test_silent_connections_to_the_api_are_closed_and_others_are_served(tmp_path: Path) -> None:
    limits = Limits(connections=5, handshake_s=0.5)
    async with served(tmp_path / "plane", limits=limits) as plane:
        host, port = plane.address.rsplit(":", 1)
        with ExitStack() as held:
            for _ in range(20):
                held.enter_context(socket.create_connection((host, int(port)), timeout=60))
            options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.initial_reconnect_backoff_ms", 100)]
            async with grpc.aio.insecure_channel(plane.address, options=options) as channel:
                request = pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n")])
                answer = await CommandsStub(channel).JoinNodes(request, wait_for_ready=True, timeout=90)
    assert answer.outcome == pb.OUTCOME_DONE
