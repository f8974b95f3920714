"""Samples of the kernel resources of the plane's processes: open files and memory."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.faults.world import World
from tests.simulation.history import Sample

EVERY_S = 0.5
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


@asynccontextmanager
async def sampling(world: World) -> AsyncIterator[None]:
    """During the context, add every new maximum of each role to the history."""
    task = asyncio.create_task(_sample(world))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sample(world: World) -> None:
    highest = {(sample.process, sample.what): sample.value for sample in world.history.of(Sample)}
    while True:
        for role in world.roles:
            for what, value in resources_of(role.pid) if role.is_running else ():
                if value > highest.get((role.name, what), 0.0):
                    highest[role.name, what] = value
                    world.history.add(Sample(time.monotonic(), role.name, what, value))
        await asyncio.sleep(EVERY_S)


def resources_of(pid: int) -> Iterator[tuple[str, float]]:
    """The resources of a process, under the names in `checkers.BOUNDS`; empty if the process has ended."""
    process = Path(f"/proc/{pid}")
    with suppress(FileNotFoundError, ProcessLookupError):
        yield "open files", sum(1 for _ in (process / "fd").iterdir())
        if resident := _RESIDENT.search((process / "status").read_text()):
            yield "resident MiB", int(resident[1]) / 1024


def highest_samples(world: World) -> dict[str, float]:
    """The highest sample of each resource over all roles."""
    found: dict[str, float] = {}
    for sample in world.history.of(Sample):
        found[sample.what] = max(found.get(sample.what, 0.0), sample.value)
    return found
