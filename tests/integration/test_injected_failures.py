"""Failures injected into simulated DPUs: attempts are counted, the DPU enters Error, and each recovery works."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_serve_embedded import until_zone_has_dpus
from tests.support.planes import run, serving

FAILURES = ("initialize:device:1:a-dpu-0000", "drain:device:3:a-dpu-0001", "drain:operator:1:a-dpu-0002")
WAIT = ("--timeout", "120")


async def test_attempts_the_error_phase_and_each_recovery_are_shown(tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    flags = [part for failure in FAILURES for part in ("--simulate-fail", failure)]
    async with serving("--data", str(tmp_path / "plane"), "--simulate", "3", *flags, stderr=errors) as plane:
        server = plane.address("api")
        await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", server=server)
        await until_zone_has_dpus(server, "a", 3)
        for dpu in ("a-dpu-0000", "a-dpu-0001", "a-dpu-0002"):
            assert (await run("dpus", "provision", dpu, "--image", "i", server=server)).status == 0
        for dpu in ("a-dpu-0001", "a-dpu-0002"):
            assert (await run("wait", "dpu", dpu, "--for", "error", *WAIT, server=server)).status == 0
        stuck = (await run("dpus", "list", "--stuck", "--output", "table", server=server)).stdout
        assert "a-dpu-0000" not in stuck
        assert "simulated: injected device failure of drain, 3 of 3" in stuck
        assert "simulated: injected operator failure of drain, 1 of 1" in stuck
        attempts = [
            int((await run("dpus", "show", dpu, "--output", "json", server=server)).json()["phase_attempts"])
            for dpu in ("a-dpu-0001", "a-dpu-0002")
        ]
        assert attempts == [3, 1]
        assert (await run("dpus", "retry", "a-dpu-0001", server=server)).status == 0
        assert (await run("dpus", "skip", "a-dpu-0002", server=server)).status == 0
        for dpu in ("a-dpu-0000", "a-dpu-0001", "a-dpu-0002"):
            ready = await run("wait", "dpu", dpu, *WAIT, server=server)
            assert ready.status == 0, ready
        assert (await run("dpus", "list", "--stuck", "--output", "json", server=server)).stdout.count("dpu-") == 0
        told = (await run("history", "a-dpu-0000", server=server)).stdout
        assert told.count("simulated: injected device failure of initialize, 1 of 1") == 1
    said = errors.read_text().splitlines()
    assert sum("failure injected into a simulated DPU" in line for line in said) == 5
    assert [failure for failure in FAILURES if not any(failure in line for line in said)] == []


async def test_a_plane_without_simulated_dpus_does_not_start_with_failures(tmp_path: Path) -> None:
    ran = await run("serve", "--data", str(tmp_path / "plane"), "--simulate-fail", "install:device:1")
    assert ran.status == 2
    assert "simulate_fail needs simulate: failures are injected into simulated DPUs only" in ran.stderr
    assert not (tmp_path / "plane").exists()
