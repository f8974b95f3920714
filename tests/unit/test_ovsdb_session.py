"""Sessions with a database server: messages in pieces, refusals, silent servers, and the copy of a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from drivers.ovsdb import session as ovsdb
from drivers.ovsdb.session import DatabaseLost, DatabaseRefused, DatabaseSession
from drivers.ovsdb.tables import COLUMNS, switch_rows
from tests.support.openvswitch import switch_folder

Respond = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(path: Path, respond: Respond) -> AsyncIterator[tuple[DatabaseSession, asyncio.Task[None]]]:
    """A session with a server that responds to each request, and the task that serves the session."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = ""
        while data := await reader.read(1 << 16):
            text += data.decode()
            while text:
                request, end = json.JSONDecoder().raw_decode(text)
                text = text[end:]
                await respond(request, writer)
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        session = await DatabaseSession.open(path)
        serving = asyncio.create_task(session.serve())
        try:
            yield session, serving
        finally:
            serving.cancel()
            await asyncio.wait({serving})


def result(request: dict[str, Any], value: Any) -> bytes:
    return json.dumps({"id": request["id"], "result": value, "error": None}, ensure_ascii=False).encode()


async def test_messages_may_come_in_any_pieces_and_several_at_once(tmp_path: Path) -> None:
    async def respond(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        echo = json.dumps({"method": "echo", "params": [], "id": "echo"}).encode()
        if request.get("method") == "transact":
            data = echo + result(request, [{"details": "Zürich }{"}]) + echo
            for at in range(0, len(data), 3):
                writer.write(data[at : at + 3])
                await writer.drain()
                await asyncio.sleep(0)

    async with connected(tmp_path / "s", respond) as (session, _):
        for _ in range(3):
            assert await session.transact([]) == [{"details": "Zürich }{"}]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"result": [{}, {"error": "constraint violation", "details": "p0 is there twice"}]}, "p0 is there twice"),
        ({"result": [{"error": "timed out"}, None]}, "timed out"),
        ({"result": None, "error": "unknown database"}, "unknown database"),
    ],
)
async def test_a_refusal_says_why(tmp_path: Path, reply: dict[str, Any], reason: str) -> None:
    async def respond(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"id": request["id"], "error": None} | reply).encode())

    async with connected(tmp_path / "s", respond) as (session, _):
        with pytest.raises(DatabaseRefused, match=reason):
            await session.transact([])


async def test_a_server_that_does_not_speak_json_rpc_is_lost(tmp_path: Path) -> None:
    async def respond(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"[1]")

    async with connected(tmp_path / "s", respond) as (session, _):
        with pytest.raises(DatabaseLost):
            await session.transact([])


async def test_a_silent_server_is_lost_with_all_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovsdb, "ECHO_S", 0.05)
    asked = []

    async def respond(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        asked.append(request["method"])

    async with connected(tmp_path / "s", respond) as (session, serving):
        with pytest.raises(DatabaseLost):
            await asyncio.gather(session.transact([]), session.updated(session.updates))
        with pytest.raises(DatabaseLost, match="sent nothing for"):
            await serving
        with pytest.raises(DatabaseLost):
            await session.updated(session.updates)
    assert asked == ["transact", "echo"]


async def test_a_message_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovsdb, "MESSAGE_MAX", 1000)

    async def respond(request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"result": "' + b"x" * 2000)

    async with connected(tmp_path / "s", respond) as (session, serving):
        with pytest.raises(DatabaseLost):
            await session.transact([])
        with pytest.raises(DatabaseLost, match="more than 1000 characters"):
            await serving


async def test_the_copy_of_a_real_database_follows_its_changes() -> None:
    with switch_folder() as switch:
        session = await DatabaseSession.open(switch.folder / "db.sock")
        serving = asyncio.create_task(session.serve())
        await session.monitor(COLUMNS)
        assert not switch_rows(session.rows).bridges
        switch.add_bridge("br0", ports=3)
        await session.until(lambda rows: any(port.number for port in _ports(rows, "br0-3")))
        bond = ("add-bond", "br0", "bond0", "eth8", "eth9")
        switch.vsctl(*bond, "--", "set", "interface", "br0-1", "external_ids:a=b", "mtu_request=2000")
        await session.until(lambda rows: any(port.mtu_request == 2000 for port in _ports(rows, "br0-1")))
        await session.until(lambda rows: "bond0" in switch_rows(rows).bridge_of)
        found = switch_rows(session.rows)
        port = found.bridges["br0"].ports["br0-1"]
        assert (port.number, port.ids, port.type, found.has_dpdk) == (1, {"a": "b"}, "dummy", False)
        assert "bond0" not in found.bridges["br0"].ports, "a bond has several ports of OpenFlow"
        with pytest.raises(DatabaseRefused, match="No column whatever"):
            await session.transact([{"op": "update", "table": "Port", "where": [], "row": {"whatever": 1}}])
        switch.vsctl("del-br", "br0")
        await session.until(lambda rows: not switch_rows(rows).bridges)
        serving.cancel()
        await asyncio.wait({serving})


def _ports(rows: ovsdb.Rows, name: str) -> list[Any]:
    return [bridge.ports[name] for bridge in switch_rows(rows).bridges.values() if name in bridge.ports]
