"""Commands without a server, and commands that a server received without a response.

Only the latter have an unknown outcome.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from tests.support.planes import run, serving

LEAVE = ("nodes", "leave", "n1", "--zone", "z1", "--timeout", "30")
SHORT_LEAVE = (*LEAVE[:-1], "1")
START = "start `dpuplane serve`, or give its --listen address with --server"


def closed_port() -> str:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """A gRPC server that accepts every call and never responds."""

    class Silent(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            async def never(_request: bytes, _context: object) -> bytes:
                await asyncio.Event().wait()
                return b""

            return grpc.unary_unary_rpc_method_handler(never)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Silent(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_a_refused_connection_is_one_short_error_without_an_unknown_outcome(tmp_path: Path) -> None:
    inventory = tmp_path / "nodes.csv"
    inventory.write_text("name,zone,address\nn1,z1,10.0.0.1\n")
    nowhere = closed_port()
    for arguments in (("status",), LEAVE, ("import", str(inventory)), ("nodes", "list", "--watch")):
        ran = await run(*arguments, server=nowhere)
        assert (ran.status, ran.stdout) == (3, "")
        assert ran.stderr == f"Error: no process listens at {nowhere}: {START}\n"
    both = f"{nowhere},{closed_port()}"
    ran = await run(*LEAVE, server=both)
    assert ran.stderr == f"Error: no process listens at {both.replace(',', ', ')}: {START}\n"


async def test_a_command_received_by_one_of_two_servers_is_unknown() -> None:
    async with silent_server() as silent:
        for servers in (silent, f"{silent},{closed_port()}", f"{closed_port()},{silent}"):
            ran = await run(*SHORT_LEAVE, server=servers)
            assert ran.status == 3
            assert f"no response from {servers.replace(',', ', ')} (deadline exceeded" in ran.stderr
            assert "check it with `dpuplane commands show " in ran.stderr


async def test_a_wrong_listener_of_the_plane_is_named(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane")) as plane:
        for name in ("http", "agents"):
            ran = await run(*LEAVE, server=plane.address(name))
            assert ran.status == 3
            assert ran.stderr == (
                f"Error: {plane.address(name)} speaks HTTP/1: "
                "give the --listen address with --server, not that of --http or --agents\n"
            )


@pytest.mark.parametrize("host", ["nowhere.invalid:7080"])
async def test_a_host_name_without_an_address_is_named(host: str) -> None:
    ran = await run(*LEAVE, server=host)
    said = f"Error: {host}: the host name does not resolve; give another address with --server\n"
    assert (ran.status, ran.stderr) == (3, said)
