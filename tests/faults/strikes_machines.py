"""Full disks and clock jumps."""

from __future__ import annotations

import asyncio
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.disk import Disk
from tests.faults.fault import ActiveFault, until_evident
from tests.faults.roles import Role

FAKETIME = Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "", "faketime/libfaketime.so.1")
HOURS_S = 7200
TOP_UP_S = 0.05
STROBES = 15
STROBE_S = 0.2
FAILURES = ("dpuplane_save_failures_total", "dpuplane_append_failures_total", "dpuplane_unknown_outcomes_total")


@asynccontextmanager
async def disk_full(active_fault: ActiveFault) -> AsyncIterator[None]:
    """The disk with a role's log or saved state is full, and has room again after the fault."""
    name = active_fault.rng.choice(sorted(active_fault.world.disks))
    (victim,) = (role for role in active_fault.world.roles if role.name == name)
    disk = active_fault.world.disks[name]
    before, ends = await _failures(victim), victim.ends

    async def failures() -> int:
        gave_up = victim.ends - ends  # a role that starts on a full disk exits with a log line and without a count
        return max(0, int(await _failures(victim) - before)) + gave_up

    async def has_failed() -> bool:
        return await failures() > 0

    async with _filled(active_fault, disk):
        yield
        await until_evident(has_failed)
        active_fault.evidence["failures that the role counted or exited with"] += await failures()


@asynccontextmanager
async def _filled(active_fault: ActiveFault, disk: Disk) -> AsyncIterator[None]:
    """During the context, allocate any room that the owner of the disk frees."""

    async def refill() -> None:
        while True:
            disk.fill()
            active_fault.evidence["samples of a full disk"] += disk.free_bytes == 0
            await asyncio.sleep(TOP_UP_S)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(refill())
        try:
            yield
        finally:
            task.cancel()
            disk.empty()


@asynccontextmanager
async def clock_ahead(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's clock jumps two hours ahead, and back after the fault."""
    async with _faked(active_fault, [HOURS_S]):
        yield


@asynccontextmanager
async def clock_behind(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's clock jumps two hours back, and ahead after the fault."""
    async with _faked(active_fault, [-HOURS_S]):
        yield


@asynccontextmanager
async def clock_strobes(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role's clock jumps back and forth, by up to three minutes."""
    steps = [active_fault.rng.randint(-180, 180) for _ in range(STROBES)]
    async with _faked(active_fault, [*steps, 150]):
        yield


@asynccontextmanager
async def _faked(active_fault: ActiveFault, offsets_s: list[int]) -> AsyncIterator[None]:
    """Restart a role under a fake wall clock, and set that clock while the role runs. Its monotonic clock is real."""
    victim = active_fault.rng.choice(active_fault.world.roles)
    file = active_fault.world.folder / f"clock of {victim.name}"
    await victim.kill()
    _set(file, 0)
    victim.start(
        {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    )
    await victim.ready()
    for offset_s in offsets_s:
        _set(file, offset_s)
        await asyncio.sleep(STROBE_S)
    clock_s = await victim.clock_s()
    active_fault.evidence["seconds off, by its own clock"] = 0 if clock_s is None else round(abs(clock_s - time.time()))
    try:
        yield
    finally:
        _set(file, 0)
        await victim.kill()
        victim.start()


def _set(file: Path, offset_s: int) -> None:
    """Replace the file in one step, so that no reader sees a part of it."""
    new = file.with_suffix(".new")
    new.write_text(f"{offset_s:+d}\n")
    new.rename(file)


async def _failures(role: Role) -> float:
    return sum(_counted(await role.metrics()))


def _counted(metrics: dict[str, float]) -> Iterator[float]:
    for name in FAILURES:
        yield metrics.get(name, 0.0)
