"""A fold, an actor, an event type and backends that only tests have work everywhere.

They run on both engines and in the simulator, and occur in metrics, status, backups, verification, decisions and ACLs.
`tests/support/extension/build.py` adds each with one line.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.extension.lab import LAB
from tests.support.extension.notes import NOTES_WANTED
from tests.support.planes import Process, Ran, run, serving, started

EXTENDED = (sys.executable, "-m", "tests.support.extension.build")
EXPECTED = [("LogCreated", None), *(("NoteWritten", f"note {number}") for number in range(NOTES_WANTED))]

_prefixes = itertools.count()


async def dpuplane(*arguments: str, server: str = "") -> Ran:
    ran = await run(*arguments, server=server, program=EXTENDED)
    assert ran.status == 0, ran
    return ran


async def metrics(process: Process) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{process.address('http')}/metrics") as response,
    ):
        return await response.text()


async def until_written(process: Process) -> str:
    """The metrics after the actor has written every note and the fold has folded them."""
    folded = f'dpuplane_position_records{{partition="notes/0"}} {NOTES_WANTED + 1:.1f}'
    async with asyncio.timeout(90):
        while folded not in (found := await metrics(process)):
            await asyncio.sleep(0.1)
    return found


async def notes(*log: str) -> list[tuple[str, str | None]]:
    """The events of the topic from `dpuplane events export`."""
    lines = (await dpuplane("events", "export", "--topic", "notes", *log)).stdout.splitlines()
    return [(event["type"], event.get("text")) for event in map(json.loads, lines)]


async def check(process: Process, log: Sequence[str], folder: Path) -> None:
    """Check the fold and the actor in metrics and status, and its records in exports, backups and verification."""
    found = await until_written(process)
    assert 'dpuplane_fold_version{topic="notes"} 1.0' in found
    assert re.search(r'dpuplane_side_effects_total\{actor="notes",rank="0"\} [1-9]', found)
    server = process.address("api")
    status: Any = (await dpuplane("status", "--output", "json", server=server)).json()
    parts = {part["partition"]: part for replica in status["replicas"] for part in replica["partitions"]}
    assert int(parts["notes/0"]["position"]) == NOTES_WANTED + 1
    assert await notes(*log) == EXPECTED
    await dpuplane("verify", *log, server=server)
    await dpuplane("backup", *log, "--out", str(folder))
    copied = json.loads((folder / "manifest.json").read_text())["partitions"]["notes/0"]
    assert copied["records"] == NOTES_WANTED + 1


async def check_backends(server: str, relay: str) -> None:
    """Check that a DPU is provisioned through the backend of its address, and that an agent uses its own backend."""
    await dpuplane("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.1", server=server)
    await dpuplane("dpus", "register", "d1", "--zone", "z1", "--bmc-address", f"{LAB}:d1", server=server)
    agent = ("agent", "--relay", relay, "--zone", "z1", "--dpu", "d1", "--backend", LAB)
    async with started(*agent, program=EXTENDED):
        await dpuplane("wait", "zone", "z1", "--for", "applied", server=server)
    await dpuplane("dpus", "provision", "d1", "--image", "image-1", server=server)
    await dpuplane("wait", "dpu", "d1", "--for", "ready", server=server)
    shown: Any = (await dpuplane("dpus", "show", "d1", "--output", "json", server=server)).json()
    assert (shown["phase"], shown["image"], shown["bmc_address"]) == ("Ready", "image-1", f"{LAB}:d1")


async def test_the_extended_build_runs_on_the_embedded_engine_and_after_a_restore(tmp_path: Path) -> None:
    data, backup, restored = (str(tmp_path / name) for name in ("data", "backup", "restored"))
    async with serving("--data", data, program=EXTENDED) as process:
        await check(process, ("--data", data), Path(backup))
        await check_backends(process.address("api"), process.address("agents"))
        assert await process.stop() == 0
    await dpuplane("restore", "--from", backup, "--data", restored)
    assert await notes("--data", restored) == EXPECTED
    async with serving("--data", restored, program=EXTENDED) as process:
        await until_written(process)


@pytest.mark.kafka
@pytest.mark.timeout(240)
async def test_the_extended_build_runs_on_kafka_and_its_decisions_are_written(
    kafka_cluster: str, tmp_path: Path
) -> None:
    on = ("--kafka", kafka_cluster, "--topic-prefix", f"extended-{next(_prefixes)}")
    async with (
        serving(*on, "--partitions", "2", "--role", "api", program=EXTENDED) as process,
        serving(*on, "--role", "decisions", program=EXTENDED),
        serving(*on, "--role", "relay", program=EXTENDED) as relay,
        serving(*on, "--role", "provisioner", program=EXTENDED),
    ):
        await check(process, on, tmp_path / "backup")
        await check_backends(process.address("api"), relay.address("agents"))
        async with asyncio.timeout(60):
            while True:
                lines = (await dpuplane("events", "export", "--topic", "decisions", *on)).stdout.splitlines()
                decided = [line for line in map(json.loads, lines) if line["topic"] == "notes"]
                if len(decided) >= NOTES_WANTED:
                    break
                await asyncio.sleep(1)
        assert {(line["event"], *line["kinds"]) for line in decided} == {("NoteWritten", "changed")}


async def test_the_topic_of_the_extended_build_is_in_the_grants_of_its_roles() -> None:
    writing = {
        role: "--operation Write" in line and "dpuplane.notes" in line
        for role in ("api", "relay", "provisioner")
        for line in (await dpuplane("topics", "acls", "--role", role, "--principal", "User:a")).stdout.splitlines()[-1:]
    }
    assert writing == {"api": True, "relay": False, "provisioner": False}


async def test_the_extended_build_runs_in_the_simulator() -> None:
    options = ("--seed", "7", "--seeds", "1", "--processes", "1", "--no-figures")
    ran = await run("simulation", *options, server="", program=EXTENDED)
    assert "1 seeds, 0 failed" in ran.stdout, ran
    assert f"{NOTES_WANTED + 1} notes records" in ran.stdout
