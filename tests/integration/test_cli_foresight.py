"""`history`, `explain` and `--dry-run` on the command line, against a real process with simulated DPUs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.planes import Process, Ran, run, serving


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Process]:
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "2") as process:
        yield process


async def ran(plane: Process, *arguments: str) -> Ran:
    return await run(*arguments, server=plane.address("api"))


async def applied(plane: Process, node: str, dpu: str) -> Any:
    """The explanation after every step is reached."""
    async with asyncio.timeout(60):
        while True:
            found = (await ran(plane, "explain", node, dpu, "--output", "json")).json()
            if not found["missing_step"]:
                return found
            await asyncio.sleep(0.2)


async def test_a_dry_run_an_explanation_and_the_history_agree(plane: Process, tmp_path: Path) -> None:
    for number in range(4):
        joined = await ran(plane, "nodes", "join", f"n{number}", "--zone", "z1", "--address", f"10.0.0.{number}")
        assert joined.status == 0
    dpus = (await ran(plane, "dpus", "list", "--output", "json")).json()["dpus"]
    found = await applied(plane, "n3", dpus[0]["dpu"])
    assert [step["name"] for step in found["steps"]][-1] == "in_hardware"
    verdict = f"n3 to {dpus[0]['dpu']} of zone z1: allowed on all traffic by policy default"
    said = (await ran(plane, "explain", "n3", dpus[0]["dpu"])).stdout.splitlines()
    assert said[-2:] == [verdict, "every step is reached"]

    web = tmp_path / "web.yaml"
    web.write_text("{name: web, action: drop, protocol: tcp, ports: [443]}\n")
    dry = await ran(plane, "policies", "apply", str(web), "--dry-run")
    assert dry.status == 0 and "+ 10.0.0.0/30" in dry.stdout
    assert "zone z1: addresses that become allowed: 0, denied: 4" in dry.stdout
    assert "policy web: prefixes added: 1, removed: 0" in dry.stdout
    assert len((await ran(plane, "policies", "list", "--output", "json")).json()["policies"]) == 1
    leave = (await ran(plane, "nodes", "leave", "n0", "n1", "--dry-run", "--output", "json")).json()
    (effect,) = leave["dry_run"]["effects"]
    assert (effect["zones"], leave["outcome"]) == (["z1"], "done")
    assert effect["rules"][0]["added"] == ["10.0.0.2/31"]
    assert (effect["addresses_allowed"], effect["addresses_denied"]) == (0, 2)
    refused = await ran(plane, "policies", "delete", "web", "--dry-run")
    assert refused.status == 1

    before = found["position"]
    hold = (await ran(plane, "policies", "apply", str(web), "--output", "json")).json()["hold"]
    waits = (await ran(plane, "holds", "show", str(hold), "--output", "json")).json()
    for actor in ("bob", "cid"):
        assert (await ran(plane, "holds", "approve", str(hold), "--as", actor)).status == 0
    dropped = (await ran(plane, "explain", "n3", dpus[0]["dpu"])).stdout.splitlines()[-2]
    assert "denied on tcp 443 by policy web" in dropped
    then = (await ran(plane, "explain", "n3", dpus[0]["dpu"], "--as-of", before)).stdout.splitlines()
    assert verdict in then and "denied" not in then[-2]

    assert (await ran(plane, "holds", "show", str(hold))).status == 1
    at_then = await ran(plane, "holds", "show", str(hold), "--as-of", waits["position"], "--output", "json")
    assert at_then.json() == waits and waits["nodes"] == []

    happened = await ran(plane, "history", "n3", "--output", "json")
    events = [found["event"] for found in happened.json()["happened"]]
    assert events == ["NodesJoined", "MembershipChanged"]
    assert "node_joined zone=z1" in (await ran(plane, "history", "n3")).stdout
    nobody = await ran(plane, "history", "nobody")
    assert nobody.status == 1 and "occurs in no event" in nobody.stderr


async def test_the_history_of_a_dpu_name_in_two_zones_can_be_limited_to_one_zone(
    plane: Process,
) -> None:
    for zone in ("z1", "z2"):
        assert (await ran(plane, "dpus", "register", "twin", "--zone", zone)).status == 0
    both = await ran(plane, "history", "twin", "--output", "json")
    zones = "'twin' is or was the name of a DPU in each of the zones z1, z2"
    assert both.stderr == f"{zones}; select one with --zone\n"
    one = await ran(plane, "history", "twin", "--zone", "z2", "--output", "json")
    assert (one.status, one.stderr) == (0, "")
    happened = both.json()["happened"]
    (partition,) = {found["partition"] for found in one.json()["happened"]}
    assert {found["partition"] for found in happened} > {partition}
    assert [found for found in happened if found["partition"] == partition] == one.json()["happened"]
    never = await ran(plane, "history", "twin", "--zone", "z3")
    assert (never.status, never.stderr) == (1, "Error: subject: 'twin' was never a DPU of zone 'z3'\n")
