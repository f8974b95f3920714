"""A scrape of a plane of 1,000 zones and 10,000 DPUs: its duration, its size, and the longest block of the loop."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import uvloop

from deploy.process.plane import Plane
from tests.bench.apart import apart
from tests.bench.figures import Figure
from tests.bench.planes import all_up_to_date, fill, serving_plane

ZONES = 1_000
NODES = 10_000
DPUS_PER_ZONE = 10
SCRAPES = 15
HOLD_AIM_MS = 5.0


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, DPUS_PER_ZONE)
        return uvloop.run(_measure(data))


async def _measure(data: Path) -> list[Figure]:
    async with serving_plane(data, simulate=DPUS_PER_ZONE) as plane, aiohttp.ClientSession() as session:
        await all_up_to_date(plane, ZONES, NODES, ZONES * DPUS_PER_ZONE)
        assert plane.parts.survey is not None
        await plane.parts.survey.walk()
        sizes: list[int] = []
        taken: list[float] = []
        held: list[float] = []
        for _ in range(SCRAPES):
            watch = asyncio.create_task(_longest_hold_ms(held))
            start = time.perf_counter()
            sizes.append(await _scrape(plane, session))
            taken.append((time.perf_counter() - start) * 1_000)
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
    about = f"{ZONES:,} zones"
    return [
        Figure(f"scrape of {about}, time", statistics.median(taken), "ms", better="lower"),
        Figure(f"scrape of {about}, size", sizes[-1] / 1_000, "kB", better="lower"),
        Figure(f"scrape of {about}, loop held", statistics.median(held), "ms", aim=HOLD_AIM_MS, better="lower"),
    ]


async def _scrape(plane: Plane, session: aiohttp.ClientSession) -> int:
    async with session.get(f"http://{plane.addresses['http']}/metrics") as response:
        text = await response.read()
    assert f"\ndpuplane_served_zones {ZONES:.1f}\n".encode() in text
    return len(text)


async def _longest_hold_ms(held: list[float]) -> None:
    """The longest time in which no other task could run, until cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    finally:
        held.append(longest * 1_000)
