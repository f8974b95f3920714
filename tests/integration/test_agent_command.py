"""`dpuplane agent`: one DPU's agent as a process, against a plane that serves."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from drivers.agents.store import FileTableStore
from tests.support.planes import DPUPLANE, run, serving, started


async def until_kept(file: Path, prefixes: int) -> None:
    """Wait until the stored table of the DPU allows this number of prefixes."""
    async with asyncio.timeout(90):
        while [len(kept) for kept in FileTableStore(file, "src/d1", "a").load().rules.values()] != [prefixes]:
            await asyncio.sleep(0.1)


async def test_a_dpu_follows_its_relay_and_keeps_its_table_over_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with serving("--data", str(tmp_path / "plane")) as plane:
        server = plane.address("api")
        joined = await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", server=server)
        assert joined.status == 0
        assert (await run("dpus", "register", "src/d1", "--zone", "a", server=server)).status == 0
        flags = ("--relay", plane.address("agents"), "--zone", "a", "--dpu", "src/d1", "--state", str(state))
        async with started("agent", *flags) as agent:
            assert agent.ready.startswith("ready dpu=src/d1 zone=a")
            await until_kept(state / "src@d1.table", 1)
            assert (await run("verify", server=server)).status == 0
            assert await agent.stop() == 0
        await run("nodes", "join", "n2", "--zone", "a", "--address", "10.0.1.1", server=server)
        async with started("agent", *flags) as agent:
            await until_kept(state / "src@d1.table", 2)
            assert (await run("verify", server=server)).status == 0


async def test_an_invalid_dpu_name_is_wrong_usage() -> None:
    ran = await run("agent", "--relay", "127.0.0.1:9", "--zone", "a b", "--dpu", "d1")
    assert (ran.status, "zone: 'a b' must be" in ran.stderr) == (2, True)


async def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    state = str(tmp_path / "file" / "state")
    ran = await run("agent", "--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "d1", "--state", state)
    assert (ran.status, ran.stderr) == (3, f"dpuplane: state: {state!r} cannot be created: Not a directory\n")


async def test_a_folder_that_cannot_be_written_is_logged_and_does_not_stop_the_agent(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    flags = ("--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "d1", "--state", "/sys")
    async with started("agent", *flags, stderr=errors) as agent:
        assert await agent.stop() == 0
    said = "state directory '/sys' is not writable, a restart of the agent loses its table: Permission denied"
    assert said in errors.read_text()


async def test_an_agent_loads_no_library_that_only_the_plane_needs(tmp_path: Path) -> None:
    """It runs on the DPU, where memory is short. Without certificates it needs no cryptography either."""
    imports = tmp_path / "imports"
    flags = ("--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "d1", "--state", str(tmp_path / "state"))
    program = (sys.executable, "-X", "importtime", DPUPLANE)
    async with started("agent", *flags, stderr=imports, program=program) as agent:
        assert await agent.stop() == 0
    loaded = {line.rpartition("|")[2].strip() for line in imports.read_text().splitlines() if "|" in line}
    assert "drivers.agents.agent" in loaded
    assert not loaded & {"pydantic", "grpc", "cryptography", "deploy.process.plane", "schemas.resources.dpf"}
