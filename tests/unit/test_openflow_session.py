"""A session with a switch that fails: what real switches cannot be made to do at a given moment."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from drivers.openflow import messages as of
from drivers.openflow import session as module
from drivers.openflow.messages import Flow
from drivers.openflow.session import SwitchLost, SwitchRefused, SwitchSession, Watched

FLOW = Flow(20, 5, 1, b"", b"")
Answer = Callable[[int, int, bytes], bytes | None]
"""The reply of a switch to a message of a kind, with an xid and a body; None closes the connection."""


def obliging(kind: int, xid: int, body: bytes) -> bytes | None:
    """A switch that takes everything, and has no flow."""
    if kind == of.BUNDLE_CONTROL:
        bundle, asked, flags = struct.unpack("!IHH", body)
        return of.message(of.BUNDLE_CONTROL, xid, struct.pack("!IHH", bundle, asked + 1, flags))
    if kind == of.MULTIPART_REQUEST:
        return of.message(of.MULTIPART_REPLY, xid, struct.pack("!HH4x", 1, 0))
    return b""


def refusing(kind: int, xid: int, body: bytes) -> bytes | None:
    """A switch that refuses a flow, and then the bundle."""
    if kind == of.BUNDLE_ADD:
        return of.message(of.ERROR, xid, struct.pack("!HH", 5, 6))
    if kind == of.BUNDLE_CONTROL and struct.unpack("!IHH", body)[1] == of.COMMIT:
        return of.message(of.ERROR, xid, struct.pack("!HH", 17, 14))
    return obliging(kind, xid, body)


def closing(asked: int) -> Answer:
    def answer(kind: int, xid: int, body: bytes) -> bytes | None:
        return None if kind == asked else obliging(kind, xid, body)

    return answer


async def with_switch(
    path: Path, answer: Answer, scenario: Callable[[SwitchSession], Awaitable[None]], hello: bytes = of.hello(1)
) -> None:
    """Run a scenario with a session with a switch that answers like this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        try:
            while True:
                _, kind, length, xid = of.HEADER.unpack(await reader.readexactly(of.HEADER.size))
                reply = answer(kind, xid, await reader.readexactly(length - of.HEADER.size))
                if reply is None:
                    break
                writer.write(reply)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_unix_server(serve, path):
        session = await SwitchSession.open(path)
        serving = asyncio.create_task(session.serve())
        try:
            await scenario(session)
        finally:
            serving.cancel()
            await asyncio.wait({serving})


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run on each of the two loops: they differ in what a write to a closed connection does."""

    def run_on(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run_on


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_a_bundle_is_installed_and_flows_are_read(run: Run, tmp_path: Path) -> None:
    async def scenario(session: SwitchSession) -> None:
        await session.install([FLOW] * 10_000, [FLOW])
        assert await session.flows(0, 0) == []

    run(with_switch(tmp_path / "s", obliging, scenario))


def test_the_error_of_a_flow_is_told_not_that_of_its_bundle(run: Run, tmp_path: Path) -> None:
    async def scenario(session: SwitchSession) -> None:
        with pytest.raises(SwitchRefused, match="flow mod failed, code 6"):
            await session.install([FLOW], [])
        with pytest.raises(SwitchRefused, match="flow mod failed, code 6"):
            await session.install([FLOW], [])  # the session goes on

    run(with_switch(tmp_path / "s", refusing, scenario))


@pytest.mark.parametrize("kind", [of.BUNDLE_CONTROL, of.BUNDLE_ADD, of.MULTIPART_REQUEST])
def test_a_switch_that_goes_away_ends_every_request(run: Run, tmp_path: Path, kind: int) -> None:
    async def scenario(session: SwitchSession) -> None:
        for _ in range(3):  # also those that begin afterwards
            with pytest.raises(SwitchLost, match="the switch closed the connection"):
                if kind == of.MULTIPART_REQUEST:
                    await session.flows(0, 0)
                else:
                    await session.install([FLOW] * 50_000, [])

    run(with_switch(tmp_path / "s", closing(kind), scenario))


def test_a_silent_switch_is_asked_for_an_echo_and_then_lost(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ECHO_S", 0.05)
    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    asked = []

    def silent(kind: int, xid: int, body: bytes) -> bytes | None:
        asked.append(kind)
        return b""

    async def scenario(session: SwitchSession) -> None:
        with pytest.raises(SwitchLost):
            await session.flows(0, 0)

    run(with_switch(tmp_path / "s", silent, scenario))
    assert asked[:3] == [of.HELLO, of.MULTIPART_REQUEST, of.ECHO_REQUEST] and {*asked[3:]} <= {of.ECHO_REQUEST}


def update(table: int, priority: int, cookie: int) -> bytes:
    """The report of a new flow."""
    entry = struct.pack("!HHBBHHH4xQ", 32, 1, table, 0, 0, 0, priority, cookie) + of.match(b"")
    return of.message(of.MULTIPART_REPLY, 0, struct.pack("!HH4x", 16, 0) + entry)


def test_changes_of_watched_flows_are_told(run: Run, tmp_path: Path) -> None:
    def reporting(kind: int, xid: int, body: bytes) -> bytes | None:
        if kind == of.BUNDLE_ADD:
            return update(body[32], int.from_bytes(body[38:40], "big"), int.from_bytes(body[16:24], "big"))
        return obliging(kind, xid, body)

    async def scenario(session: SwitchSession) -> None:
        await session.watch([Watched(0, 0xA0, 0xF0, frozenset({9})), Watched(20)])
        for table, priority, cookie, is_told in (
            (0, 5, 0xA7, True),
            (0, 5, 0xB7, False),
            (0, 9, 0xB7, True),  # it may have replaced a watched one
            (20, 5, 0xB7, True),
            (30, 9, 0xA7, False),
        ):
            await session.install([Flow(table, priority, cookie, b"", b"")], [])
            await session.flows(0, 0)  # what the switch reported is read
            telling = asyncio.create_task(session.until_changed())
            await asyncio.wait({telling}, timeout=None if is_told else 0.05)
            assert telling.done() == is_told, (table, priority, cookie)
            telling.cancel()
            await asyncio.wait({telling})

    run(with_switch(tmp_path / "s", reporting, scenario))


def test_a_switch_that_commits_for_long_is_not_lost(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is silent until the commit is done: it has one thread for all of OpenFlow."""
    monkeypatch.setattr(module, "ECHO_S", 0.02)
    held: list[bytes] = []
    echoes: list[int] = []

    def busy(kind: int, xid: int, body: bytes) -> bytes | None:
        if kind == of.ECHO_REQUEST:
            echoes.append(xid)
            return held.pop() if len(echoes) == 5 else b""
        reply = obliging(kind, xid, body)
        if reply and kind == of.BUNDLE_CONTROL and struct.unpack("!IHH", body)[1] == of.COMMIT:
            held.append(reply)
            return b""
        return reply

    async def scenario(session: SwitchSession) -> None:
        await session.install([FLOW], [])
        assert len(echoes) == 5

    run(with_switch(tmp_path / "s", busy, scenario))


def test_a_session_without_a_request_is_kept_while_the_switch_is_busy(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of another session keeps the switch from answering the echoes of this one."""
    monkeypatch.setattr(module, "ECHO_S", 0.02)
    echoes: list[int] = []

    def busy(kind: int, xid: int, body: bytes) -> bytes | None:
        if kind == of.ECHO_REQUEST:
            echoes.append(xid)
            return b"" if len(echoes) < 5 else of.message(of.ECHO_REPLY, xid)
        return obliging(kind, xid, body)

    async def scenario(session: SwitchSession) -> None:
        while len(echoes) < 6:
            await asyncio.sleep(0.01)
        assert await session.flows(0, 0) == []

    run(with_switch(tmp_path / "s", busy, scenario))


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_request_to_a_switch_that_does_not_read_ends(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """The switch stops to read in the middle of a bundle that exceeds the buffers of the socket."""
    monkeypatch.setattr(module, "ECHO_S", 0.05)
    monkeypatch.setattr(module, "ANSWER_S", 1.0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(of.hello(1))
        for _ in range(2):  # its Hello, and the bundle
            _, kind, length, xid = of.HEADER.unpack(await reader.readexactly(of.HEADER.size))
            writer.write(obliging(kind, xid, await reader.readexactly(length - of.HEADER.size)) or b"")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not ended.is_set():
            writer.write(b"" if is_silent else of.message(of.ECHO_REPLY, 0))
            await asyncio.sleep(0.05)
        writer.close()

    ended = asyncio.Event()

    async def main() -> None:
        async with await asyncio.start_unix_server(serve, tmp_path / "s"):
            session = await SwitchSession.open(tmp_path / "s")
            serving = asyncio.create_task(session.serve())
            with pytest.raises(SwitchLost, match=r"closed the connection|the switch read nothing"):
                async with asyncio.timeout(60):
                    await session.install([FLOW] * 50_000, [])
            ended.set()
            serving.cancel()
            await asyncio.wait({serving})

    run(main())


def test_a_switch_that_sends_what_cannot_be_read_is_lost(run: Run, tmp_path: Path) -> None:
    def garbling(kind: int, xid: int, body: bytes) -> bytes | None:
        entry_of_no_size = struct.pack("!HH4x", 16, 0) + bytes(64)
        return of.message(of.MULTIPART_REPLY, 0, entry_of_no_size) if kind == of.MULTIPART_REQUEST else b""

    async def scenario(session: SwitchSession) -> None:
        with pytest.raises(SwitchLost, match="closed the connection"):
            await session.flows(0, 0)

    run(with_switch(tmp_path / "s", garbling, scenario))


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (of.message(of.HELLO, 1, b"\x00\x01\x00\x08\x00\x00\x00\x02"), "does not offer OpenFlow 1.4"),
        (b"", "did not answer within 0.2 s"),
        (struct.pack("!BBHI", 5, 0, 3, 1), "does not speak OpenFlow"),
    ],
)
def test_a_switch_without_the_version_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hello: bytes, said: str
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.2)

    async def scenario(session: SwitchSession) -> None:
        raise AssertionError("there is no session")

    async def main() -> None:
        with pytest.raises(SwitchLost, match=said):
            await with_switch(tmp_path / "s", obliging, scenario, hello)

    run(main())
