"""Staged changes of policies on the command line, against a real process with simulated DPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.planes import Process, Ran, run, serving


async def ran(plane: Process, *arguments: str, status: int = 0) -> Ran:
    found = await run(*arguments, server=plane.address("api"))
    assert found.status == status, found.stdout + found.stderr
    return found


async def until_staged(plane: Process, holds: Callable[[Any], bool]) -> Any:
    """The staged change once a condition holds."""
    async with asyncio.timeout(60):
        while True:
            found = (await ran(plane, "policies", "status", "--output", "json")).json()
            if holds(found):
                return found
            await asyncio.sleep(0.2)


async def test_a_policy_is_staged_paused_resumed_and_rolled_back(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("{name: web, action: drop, sources: {app: web}}\n")
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "5") as plane:
        for number in range(4):
            await ran(plane, "nodes", "join", f"n{number}", "--zone", "z1", "--address", f"10.0.0.{number}")
        await ran(plane, "nodes", "join", "w", "--zone", "z1", "--address", "10.0.0.9", "--label", "app=web")
        await ran(plane, "wait", "zone", "z1", "--for", "applied")
        assert "no change of a policy was staged" in (await ran(plane, "policies", "status", status=1)).stderr
        bad = await ran(plane, "policies", "apply", str(web), "--stages", "5%,1%,100%", status=1)
        assert "stages: must not decrease" in bad.stderr
        assert "need --stages" in (await ran(plane, "policies", "apply", str(web), "--bake-time", "5", status=2)).stderr

        await ran(plane, "policies", "apply", str(web), "--stages", "1,60%,100%", "--bake-time", "1h")
        found = await until_staged(plane, lambda found: found["installed"] == 1)
        assert (found["phase"], found["stage"], found["dpus"], found["waiting"]) == ("staging", 1, 5, 0)
        assert int(found["named"][0]) == 1
        names = [each["dpu"] for each in (await ran(plane, "dpus", "list", "--output", "json")).json()["dpus"]]
        first, last = (
            (await ran(plane, "explain", "w", names[0])).stdout,
            (await ran(plane, "explain", "w", names[4])).stdout,
        )
        assert "is in stage 1 of 3 of the staged change of policy 'web', and has the list with it" in first
        assert "denied on all traffic by policy web" in first
        assert "is in no released stage of the staged change of policy 'web' (1 of 3)" in last
        assert "allowed on all traffic by policy default" in last
        assert (
            "a change of policy 'web' is staged" in (await ran(plane, "policies", "apply", str(web), status=1)).stderr
        )
        assert (await ran(plane, "verify")).status == 0

        await ran(plane, "policies", "pause", "web")
        assert "paused by" in (await ran(plane, "policies", "status")).stdout
        await ran(plane, "policies", "resume", "web")
        undone = await ran(plane, "policies", "undo", "web")
        assert "all DPUs return to no policy of this name" in undone.stdout
        await until_staged(plane, lambda found: found["phase"] == "undone")
        await ran(plane, "policies", "apply", str(web), "--stages", "1,60%,100%")
        found = await until_staged(plane, lambda found: found["phase"] == "complete")
        assert [int(count) for count in found["named"]] == [1, 2]
        await ran(plane, "wait", "zone", "z1", "--for", "applied")
        assert (await ran(plane, "verify")).status == 0
        listed = (await ran(plane, "history", "web")).stdout
        assert "stage_released" in listed and "change_complete" in listed
