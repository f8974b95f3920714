"""The lock of a bridge in the database of a real Open vSwitch: one agent serves a bridge, also after faults."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.host.openvswitch import Switch
from drivers.agents.store import FileTableStore
from drivers.backends import bridge_lock
from drivers.backends.bridge_lock import BridgeLock, BridgeTaken, lock_name
from drivers.backends.connection import RECONNECT_LAST_S
from drivers.ovsdb.session import DatabaseSession
from projections.rules.rule import Rule
from tests.contract.device import table
from tests.support.eventually import until
from tests.support.planes import Process, started


@asynccontextmanager
async def lock_of(switch: Switch, bridge: str, seed: int) -> AsyncIterator[tuple[BridgeLock, asyncio.Task[None]]]:
    """A lock as an agent has it, and the task that keeps it."""
    lock = BridgeLock(bridge, switch.folder / "db.sock", rng=random.Random(seed))
    running = asyncio.create_task(lock.run())
    try:
        yield lock, running
    finally:
        running.cancel()
        await asyncio.wait({running})


def save_table(folder: Path, source: str) -> None:
    """Save a table that allows packets of a source, as an agent does."""
    folder.mkdir()
    rules = {Rule(1, "allow", "any", ()): frozenset({bytes(map(int, source.split("."))) + b"\x20"})}
    FileTableStore(folder / "src@d1.table", "src/d1", "a").save(table(1, rules))


@asynccontextmanager
async def agent(switch: Switch, bridge: str, folder: Path, source: str) -> AsyncIterator[Process]:
    """An agent without a relay, whose saved table allows packets of a source."""
    save_table(folder, source)
    flags = ["--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "src/d1", "--state", str(folder)]
    flags += ["--backend", "openvswitch", "--bridge", bridge, "--openvswitch-run", str(switch.folder)]
    async with started("agent", *flags, stderr=folder / "errors") as process:
        yield process


def forwards(switch: Switch, bridge: str, source: str) -> bool:
    return switch.is_forwarded(bridge, f"in_port=1,ip,nw_src={source}")


async def test_a_second_agent_of_a_bridge_waits_until_the_first_is_dead(switch: Switch, tmp_path: Path) -> None:
    switch.add_bridge("one")
    async with agent(switch, "one", tmp_path / "first", "10.0.0.1") as first:
        await until(lambda: forwards(switch, "one", "10.0.0.1"))
        async with agent(switch, "one", tmp_path / "second", "10.0.0.2") as second:
            said = "another agent serves the bridge, this one waits until that has ended"
            await until(lambda: said in (tmp_path / "second" / "errors").read_text())
            assert forwards(switch, "one", "10.0.0.1") and not forwards(switch, "one", "10.0.0.2")
            first.kill()
            await until(lambda: forwards(switch, "one", "10.0.0.2"))
            assert not forwards(switch, "one", "10.0.0.1")
            assert await second.stop() == 0


async def test_a_waiting_agent_can_be_stopped_and_leaves_everything_as_it_is(switch: Switch, tmp_path: Path) -> None:
    switch.add_bridge("left")
    async with lock_of(switch, "left", 1) as (lock, _):
        await lock.acquired()
        before = switch.flows("left")
        async with agent(switch, "left", tmp_path / "second", "10.0.0.2") as second:
            await until(lambda: "another agent serves" in (tmp_path / "second" / "errors").read_text())
            assert await second.stop() == 0
        assert switch.flows("left") == before


async def test_bridges_have_locks_of_their_own(switch: Switch) -> None:
    async with lock_of(switch, "br.1", 1) as (first, _), lock_of(switch, "br-1", 2) as (second, _):
        async with asyncio.timeout(30):
            await first.acquired()
            await second.acquired()


async def test_an_agent_keeps_its_bridge_over_a_restart_of_the_database(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waits does not ask for the lock again before the first had the time to do so."""
    monkeypatch.setattr(bridge_lock, "RETURN_S", 3_600.0)
    async with lock_of(switch, "kept", 1) as (first, keeping):
        await first.acquired()
        async with lock_of(switch, "kept", 2) as (second, _):
            await until(lambda: second.is_waiting)
            for sessions in (2, 3):
                switch.kill("ovsdb-server")
                switch.start_daemon("ovsdb-server")
                await until(partial(_has_had, first, sessions))
                assert second.is_waiting and not second.sessions
        assert not keeping.done()


async def test_an_agent_that_ends_while_the_database_is_away_is_followed(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bridge_lock.RETURN_S > RECONNECT_LAST_S, "the first one asks before that"
    monkeypatch.setattr(bridge_lock, "RETURN_S", 0.1)
    async with AsyncExitStack() as stack:
        async with lock_of(switch, "followed", 1) as (first, _):
            await first.acquired()
            second, _ = await stack.enter_async_context(lock_of(switch, "followed", 2))
            await until(lambda: second.is_waiting)
            switch.kill("ovsdb-server")
        switch.start_daemon("ovsdb-server")
        await until(partial(_has_had, second, 1))
        assert not second.is_waiting


def _has_had(lock: BridgeLock, sessions: int) -> bool:
    return lock.sessions >= sessions


async def test_an_agent_whose_lock_was_taken_by_force_ends_with_a_sentence(switch: Switch) -> None:
    async with lock_of(switch, "stolen", 1) as (lock, keeping):
        await lock.acquired()
        session = await DatabaseSession.open(switch.folder / "db.sock")
        serving = asyncio.create_task(session.serve())
        try:
            await session._request("steal", [lock_name("stolen")])
            await until(keeping.done)
            with pytest.raises(BridgeTaken, match="bridge stolen: another agent serves it now"):
                keeping.result()
        finally:
            serving.cancel()
            await asyncio.wait({serving})


async def test_an_agent_waits_for_a_database_that_is_not_there(
    switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    switch.kill("ovsdb-server")
    async with lock_of(switch, "later", 1) as (lock, keeping):
        await until(lambda: "the lock of the bridge cannot be asked for" in caplog.text)
        assert not keeping.done() and not lock.sessions
        switch.start_daemon("ovsdb-server")
        async with asyncio.timeout(30):
            await lock.acquired()


BRIDGES = st.from_regex(r"[A-Za-z0-9_.:-]{1,15}", fullmatch=True)


@given(BRIDGES, BRIDGES)
def test_each_bridge_has_a_name_of_a_lock_that_the_database_takes(one: str, other: str) -> None:
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", lock_name(one))
    assert (lock_name(one) == lock_name(other)) == (one == other)
