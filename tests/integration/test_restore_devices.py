"""DPUs after a restore: each that is ahead of the log is reported, and none is written to before a thaw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support.planes import Ran, run, serving, started

DPUS = 2


async def until(ask: Callable[[], Awaitable[Ran]], is_so: Callable[[Ran], bool]) -> Ran:
    """The first result for which the condition holds."""
    ran = Ran(1, "", "no command was run")
    for _ in range(60):
        ran = await ask()
        if is_so(ran):
            return ran
        await asyncio.sleep(0.5)
    raise AssertionError(ran)


class PlaneAddresses:
    """The addresses of a plane, which stay the same when its process is replaced."""

    def __init__(self, api: str, agents: str) -> None:
        self.api = api
        self.agents = agents

    async def say(self, *arguments: str) -> Ran:
        return await run(*arguments, "--output", "json", server=self.api)

    async def until_equal(self) -> None:
        """Wait until every DPU has the table of the log."""
        await until(lambda: self.say("verify"), lambda ran: ran.status == 0 and ran.json()["devices_equal"] == DPUS)

    async def until_newer(self, count: int) -> None:
        """Wait until this number of DPUs is reported as ahead of the log."""

        def is_so(ran: Ran) -> bool:
            return ran.status == 0 and sum(each["dpus_ahead_of_log"] for each in ran.json()["replicas"]) == count

        await until(lambda: self.say("status"), is_so)


async def test_a_dpu_ahead_of_the_backup_is_reported_and_waits_for_a_thaw(tmp_path: Path) -> None:
    old, new, copy = (str(tmp_path / name) for name in ("old", "new", "copy"))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving("--data", old))
        plane = PlaneAddresses(first.address("api"), first.address("agents"))
        simulate = ("simulator", "--relay", plane.agents, "--dpus-per-zone", str(DPUS), "--server", plane.api)
        await stack.enter_async_context(started(*simulate))
        assert (await plane.say("nodes", "join", "n1", "--zone", "z", "--address", "10.0.0.1")).status == 0
        await plane.until_equal()
        assert (await plane.say("wait", "zone", "z", "--for", "in-hardware")).status == 0
        then_ms = str(time.time_ns() // 1_000_000)
        assert (await plane.say("backup", "--out", copy)).status == 0
        assert (await plane.say("nodes", "join", "n2", "--zone", "z", "--address", "10.0.0.9")).status == 0
        await plane.until_equal()
        assert await first.stop() == 0
        assert (await run("restore", "--from", copy, "--data", new)).status == 0

        at = ("--listen", plane.api, "--http", "127.0.0.1:0", "--agents", plane.agents)
        await stack.enter_async_context(started("serve", *at, "--data", new))
        await plane.until_newer(DPUS)
        differing = await plane.say("verify")
        assert differing.status == 1
        said = [
            line
            for line in differing.json()["differences"]
            if "after the backup that this log was restored from" in line
        ]
        assert len(said) == DPUS
        assert all("holds epoch 1 version" in line and "the zone is frozen" in line for line in said)

        restored = (await plane.say("zones", "show", "z")).json()
        assert (restored["installs"], restored["lagging"]) == ([], []), "installs of the old epoch must not be shown"
        before = (await plane.say("zones", "show", "z", "--as-of", then_ms)).json()
        assert before["installs"][0]["in_hardware"] == DPUS, "the past shows the former installs"
        waited = await plane.say("wait", "zone", "z", "--for", "applied", "--timeout", "5")
        assert (waited.status, "no DPU has reported" in waited.stderr) == (3, True)

        assert (await plane.say("thaw", "--all")).status == 0
        await plane.until_equal()
        await plane.until_newer(0)

        def regressed(ran: Ran) -> bool:
            return len({each["dpu"] for each in ran.json()["exceptions"]}) == DPUS

        await until(lambda: plane.say("zones", "show", "z"), regressed)
