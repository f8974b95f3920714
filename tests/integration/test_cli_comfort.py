"""Interactive features of the command line against a real plane: wait, --watch, and shell completion of names."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.api import dpuplane_pb2 as pb
from tests.support.planes import DPUPLANE, READY_TIMEOUT_S, run
from tests.support.sample_log import write_sample_log
from tests.support.served import Served, served

SOON_S = "3"
"""Time limit of a wait that fails: long enough for a first answer on a busy machine."""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


async def joined(plane: Served, zone: str, name: str, address: str) -> None:
    assert (await plane.join(zone, pb.NodeSpec(name=name, addresses=[address]))).outcome == pb.OUTCOME_DONE


@asynccontextmanager
async def piped(*arguments: str, stdout: int = asyncio.subprocess.PIPE) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running command. It is killed on exit if it still runs."""
    child = await asyncio.create_subprocess_exec(DPUPLANE, *arguments, stdout=stdout, stderr=asyncio.subprocess.PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_wait_accepts_a_present_state_and_a_later_one(plane: Served) -> None:
    await joined(plane, "z1", "n1", "10.0.0.1")
    there = await run("wait", "node", "n1", "--for", "covered", server=plane.address)
    assert (there.status, there.stderr) == (0, "")
    assert there.stdout.startswith("node n1: covered: version ")
    bare = await run("wait", "zone", "z1", "--output", "json", server=plane.address)
    assert bare.json()["seen"].endswith("no DPUs"), "an empty zone has no DPU to wait for"
    coming = asyncio.create_task(run("wait", "clique", "d", "c", "--for", "full", server=plane.address))
    await plane.calls.SetCliqueCapacity(pb.SetCliqueCapacityRequest(domain="d", clique="c", capacity=1))
    await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    assert (await coming).stdout == "clique d/c: full: 1 of 1 indices taken, 0 ready\n"


async def test_a_wait_for_several_objects_ends_with_the_last(plane: Served) -> None:
    for zone in ("z1", "z2"):
        await joined(plane, zone, f"{zone}-n", f"10.0.0.{zone[1]}")
        await plane.calls.UpdateZone(pb.UpdateZoneRequest(zone=zone, set_labels=True, labels={"row": "7"}))
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone=zone, dpu=f"{zone}-d"))
    selected = ("--selector", "row=7", "--timeout", SOON_S)
    phase = await run("wait", "dpu", "--selector", "row=7", "--for", "initializing", server=plane.address)
    assert (phase.status, phase.stdout) == (0, "dpu row=7: Initializing: 2 of 2 DPUs\n")
    late = await run("wait", "dpu", *selected, server=plane.address)
    assert (late.status, "0 of 2 DPUs; z1/z1-d is in Initializing" in late.stderr) == (3, True)
    named = await run("wait", "dpu", "z1-d", "z2-d", "--for", "initializing", server=plane.address)
    assert named.stdout == "dpu z1-d, z2-d: Initializing: 2 of 2; z2-d: Initializing, attempts 0\n"
    zones = await run("wait", "zone", *selected, server=plane.address)
    assert (zones.status, "last seen: 0 of 2; z1: version" in zones.stderr) == (3, True)
    nothing = await run("wait", "zone", "-l", "row=8", server=plane.address)
    assert (nothing.status, nothing.stderr) == (1, "Error: no zone matches\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["node", "n1", "--for", "covered"], "zone z1 lacks 10.0.0.1; see `dpuplane policies list`"),
        (["clique", "d", "c", "--for", "ready"], "1 of 1 indices taken, 0 ready; see `dpuplane cliques show d c`"),
        (["dpu", "d1", "--for", "ready"], "attempts 0; see `dpuplane history d1`"),
        (["zone", "z1", "--for", "applied"], "no DPU has reported version 3 or later; see `dpuplane zones show z1`"),
        (["zone", "nowhere"], "'nowhere'"),
    ],
    ids=" ".join,
)
async def test_a_wait_that_times_out_prints_the_last_state(plane: Served, arguments: list[str], said: str) -> None:
    await joined(plane, "z1", "n1", "10.0.0.1")
    drop = pb.PolicySpec(name="shut", action="drop", priority=9)
    await plane.calls.SetPolicy(pb.SetPolicyRequest(policy=drop))
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    await plane.calls.SetCliqueCapacity(pb.SetCliqueCapacityRequest(domain="d", clique="c", capacity=1))
    await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    ended = await run("wait", *arguments, "--timeout", SOON_S, server=plane.address)
    assert (ended.status, ended.stdout) == (3, "")
    assert f"within {SOON_S} s; last seen: " in ended.stderr
    assert said in ended.stderr


async def test_a_command_about_a_dpu_name_in_two_zones_asks_for_the_zone(plane: Served) -> None:
    for zone in ("z1", "z2"):
        assert (await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone=zone, dpu="d1"))).outcome == pb.OUTCOME_DONE
    await joined(plane, "z1", "n1", "10.0.0.1")
    verbs = [("dpus", verb, "d1") for verb in ("pause", "resume", "retry", "skip", "abort", "delete")]
    provision = ("dpus", "provision", "d1", "--image", "i")
    asking = [("wait", "dpu", "d1", "--timeout", "100"), ("dpus", "show", "d1"), ("explain", "n1", "d1"), provision]
    for asked in (*asking, *verbs):
        ended = await run(*asked, server=plane.address)
        assert (ended.status, ended.stderr) == (
            1,
            "Error: dpu: 'd1' exists in the zones z1, z2; name its zone (--zone)\n",
        )
    named = await run("wait", "dpu", "d1", "--zone", "z2", "--for", "initializing", server=plane.address)
    assert (named.status, named.stdout) == (0, "dpu d1: Initializing: Initializing, attempts 0\n")


async def test_a_watched_list_is_printed_on_changes_and_ends_by_ctrl_c_with_130(plane: Served) -> None:
    await joined(plane, "z1", "n1", "10.0.0.1")
    arguments = ("nodes", "list", "--watch", "--server", plane.address)
    async with piped(*arguments) as child, asyncio.timeout(READY_TIMEOUT_S):
        assert child.stdout is not None and child.stderr is not None
        await child.stdout.readuntil(b"n1")
        await joined(plane, "z1", "n2", "10.0.0.2")
        again = await child.stdout.readuntil(b"n2")
        assert again.count(b"NAME") == 1 and b"\x1b" not in again, (
            "the list is printed again in whole, without colours in a pipe"
        )
        child.send_signal(signal.SIGINT)
        assert await child.wait() == 130
        assert await child.stderr.read() == b""


async def test_a_watched_list_ends_when_its_reader_closes_the_pipe(plane: Served) -> None:
    await joined(plane, "z1", "n1", "10.0.0.1")
    await ends_with_its_reader("nodes", "list", "--watch", "--server", plane.address)


async def test_an_event_tail_ends_when_its_reader_closes_the_pipe(tmp_path: Path) -> None:
    await write_sample_log(tmp_path / "plane", records=4)
    one = ("--topic", "fleet", "--type", "LogCreated", "--from-beginning")
    await ends_with_its_reader("events", "tail", *one, "--data", str(tmp_path / "plane"))


async def ends_with_its_reader(*arguments: str) -> None:
    reading, writing = os.pipe()
    async with piped(*arguments, stdout=writing) as child, asyncio.timeout(READY_TIMEOUT_S):
        assert child.stderr is not None
        os.close(writing)
        try:
            assert await asyncio.to_thread(os.read, reading, 1)
        finally:
            os.close(reading)
        assert await child.wait() == 0
        assert await child.stderr.read() == b""


async def test_a_dry_run_over_a_missing_log_is_refused(plane: Served, tmp_path: Path) -> None:
    ended = await run("upgrade", "--dry-run", "--data", str(tmp_path / "none"), server=plane.address)
    assert (ended.status, ended.stdout) == (1, "")
    assert "none holds no log; give the folder of" in ended.stderr


async def test_a_past_state_cannot_be_watched(plane: Served) -> None:
    ended = await run("zones", "list", "--watch", "--as-of", "2026-01-01", server=plane.address)
    assert ended.status == 2
    assert "--watch" in ended.stderr


async def on_a_terminal(*arguments: str, **environment: str) -> str:
    """The output of a command whose stdout is a terminal."""
    ours, its = os.openpty()
    try:
        child = await asyncio.create_subprocess_exec(
            DPUPLANE, *arguments, stdout=its, env={**os.environ, "TERM": "xterm", **environment}
        )
        assert await child.wait() == 0
        return os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(its)


async def test_colours_are_used_on_terminals_unless_switched_off(plane: Served) -> None:
    await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    await plane.calls.ReportDaemonReadiness(
        pb.ReportDaemonReadinessRequest(domain="d", clique="c", node="n1", ready=True)
    )
    show = ("cliques", "show", "d", "c", "--server", plane.address)
    coloured = await on_a_terminal(*show)
    assert "\x1b[32mready\x1b[0m" in coloured
    plain = await on_a_terminal(*show, NO_COLOR="1")
    assert "\x1b" not in plain and "ready" in plain
    assert "\x1b" not in await on_a_terminal(*show, TERM="dumb")
    assert "\x1b" not in await on_a_terminal(*show, "--output", "json")
    assert "\x1b" not in (await run(*show, server=plane.address)).stdout


async def test_an_unknown_name_is_refused_with_a_hint_where_to_look(plane: Served) -> None:
    nobody = await run("zones", "show", "rack9", server=plane.address)
    assert nobody.status == 1
    assert nobody.stderr.endswith("; see `dpuplane zones list`\n")
    mistyped = await run("zone", "show", "rack9", server=plane.address)
    assert mistyped.status == 2
    assert "unknown command 'zone': did you mean zones" in mistyped.stderr


async def completed(line: str, server: str) -> list[str]:
    words = line.split(" ")
    environment = {"_DPUPLANE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ran = await run(server=server, environment=environment)
    return [text.partition(",")[2] for text in ran.stdout.splitlines() if text]


async def test_a_shell_completes_commands_options_and_names(plane: Served) -> None:
    await joined(plane, "rack7", "rack7-n1", "10.0.0.1")
    await joined(plane, "rack8", "rack8-n1", "10.0.0.2")
    await plane.calls.ClaimIndices(pb.ClaimIndicesRequest(domain="d", clique="c", claims=[pb.ClaimSpec(node="n1")]))
    assert await completed("dpuplane wa", plane.address) == ["wait"]
    assert "--watch" in await completed("dpuplane zones show --", plane.address)
    assert await completed("dpuplane zones show ", plane.address) == ["rack7", "rack8"]
    assert await completed("dpuplane nodes list --zone rack8", plane.address) == ["rack8"]
    assert await completed("dpuplane nodes leave rack7-n1 ", plane.address) == ["rack7-n1", "rack8-n1"]
    assert await completed("dpuplane cliques show d ", plane.address) == ["c"]
    assert await completed("dpuplane policies delete ", plane.address) == ["default"]
    assert await completed("dpuplane zones show ", "127.0.0.1:9") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_completion_script_of_a_shell_is_printed(shell: str, tmp_path: Path) -> None:
    ran = await run("completion", shell, environment={"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert (ran.status, ran.stderr) == (0, "")
    assert f"_DPUPLANE_COMPLETE={shell}_complete" in ran.stdout
