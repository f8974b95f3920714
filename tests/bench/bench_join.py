"""From a join to the DPUs of every zone: 200 zones of 1,000 simulated DPUs, all in this process.

First one join at a time, measured here until the last of the 200,000 DPUs has applied it. Then a burst of 50,000 joins
a minute, measured by the relay, over every DPU and change: from the append of the change that waited longest to the
acknowledgement. Afterwards every DPU is held against the log, folded afresh.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
from collections.abc import Iterable
from pathlib import Path

import uvloop

from deploy.plane import Plane
from drivers.latency import Histogram
from drivers.reports import Level
from schemas.events import NodesJoined
from tests.bench.apart import apart
from tests.bench.figures import Figure, percentile
from tests.bench.planes import all_up_to_date, differences, fill, serving_plane, submit, until
from tests.bench.workload import joins

ZONES = 200
DPUS_PER_ZONE = 1_000
DPUS = ZONES * DPUS_PER_ZONE
NODES = 20_000
SINGLE_JOINS = 60
BURST = 25_000
BURST_PER_S = 50_000 / 60
TURN_S = 0.02


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, DPUS_PER_ZONE)
        return uvloop.run(_measure(data))


async def _measure(data: Path) -> list[Figure]:
    async with serving_plane(data, simulate=DPUS_PER_ZONE) as plane:
        await all_up_to_date(plane, ZONES, NODES, DPUS)
        gc.collect()
        gc.freeze()
        one_by_one = [await _join(plane, event) * 1e3 for event in _events(SINGLE_JOINS, NODES)]
        await _burst(plane, NODES + SINGLE_JOINS, BURST // 6)
        before = _peak_memory()
        latency = await _burst(plane, NODES + SINGLE_JOINS + BURST // 6, BURST)
        grown = _peak_memory() / before - 1
        wrong = await differences(plane)
    name = f"{DPUS:,} DPUs in {ZONES} zones"
    return [
        Figure(f"one join to {name}, p50", percentile(one_by_one, 0.5), "ms", better="lower"),
        Figure(f"one join to {name}, p99", percentile(one_by_one, 0.99), "ms", aim=250.0, better="lower"),
        Figure(f"50,000 joins/min to {name}, p50", latency.quantile(0.5), "ms", better="lower"),
        Figure(f"50,000 joins/min to {name}, p99", latency.quantile(0.99), "ms", aim=1000.0, better="lower"),
        Figure("DPUs that differ from the log afterwards", wrong, "DPUs", aim=0.0, better="lower"),
        Figure(f"peak memory, after {BURST:,} more nodes", 100 * grown, "% more", aim=10.0, better="lower"),
    ]


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _events(count: int, first: int) -> Iterable[NodesJoined]:
    return joins(count, ZONES, per_record=1, first=first, seed=first)


async def _join(plane: Plane, event: NodesJoined) -> float:
    """Seconds until the last DPU has applied it."""
    assert plane.relay is not None
    applied, now_s = plane.relay.latency[Level.APPLIED], asyncio.get_running_loop().time
    before, began_s = applied.count, now_s()
    await submit(plane, event)
    await until(lambda: applied.count >= before + DPUS)
    return now_s() - began_s


async def _burst(plane: Plane, first: int, count: int) -> Histogram:
    """Joins at an even pace, however long each takes; what the relay measured of them."""
    assert plane.relay is not None
    latency = plane.relay.latency[Level.APPLIED] = Histogram()
    now_s = asyncio.get_running_loop().time
    began_s, started = now_s(), 0
    async with asyncio.TaskGroup() as tasks:
        for event in _events(count, first):
            tasks.create_task(submit(plane, event))
            started += 1
            while (now_s() - began_s) * BURST_PER_S < started:
                await asyncio.sleep(TURN_S)
    await all_up_to_date(plane, ZONES, first + count, DPUS)
    return latency
