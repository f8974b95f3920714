"""From a join to the DPUs of every zone: 200 zones of 1,000 simulated DPUs and the plane, all in this process.

First one join at a time, measured here until the last of the 200,000 DPUs has applied it. Then 50,000 joins a minute,
each a command of its own, for as many minutes as are asked for: measured by the relay, over every DPU and change, from
the append of the change that waited longest to the acknowledgement. Then the same nodes join and leave at the same
rate. This shows the memory that does not depend on the number of nodes: the ids of commands (of the last ten minutes),
decisions that are not written yet (of 32 MB of records), and versions of a zone (1,024). It grows until these are full.
In a stream of one minute, RocksDB's write buffers alone move memory by up to 1 kB a join, in both directions, as they
fill and are flushed; streams of ten minutes average that.
Then the same nodes join and leave at rising rates, up to the first rate whose p99 exceeds a second. Then 200,000 nodes
join in one burst. Finally every DPU is compared with a new fold of the log. The garbage collector is set as in a
serving process: with the defaults of Python it stops the plane for 0.1 s and more every four seconds.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import uvloop

from deploy.process.plane import Plane
from deploy.process.run import tune_garbage_collector
from drivers.relays.latency import LatencyHistogram
from eventstore.ids import envelope
from eventstore.log import FLEET_0
from projections.installs.rows import Level
from schemas.events import BudgetSet, HoldApproved, NodesJoined, NodesLeft
from tests.bench.apart import apart
from tests.bench.figures import Figure, percentile
from tests.bench.memory import Growth
from tests.bench.planes import (
    PATIENCE_S,
    all_up_to_date,
    differences,
    fill,
    serving_plane,
    submit,
    until,
)
from tests.bench.workload import joins, leaves, new_id

ZONES = 200
DPUS_PER_ZONE = 1_000
DPUS = ZONES * DPUS_PER_ZONE
NODES = 20_000
SINGLE_JOINS = 60
PER_MINUTE = 50_000
WARM_UP = 5_000
CHURN_SHARE = 0.5
"""The duration of joins and leaves, as a share of the minutes of joins."""
CHURNED = 2_000
FLAT_AFTER = 8 * PER_MINUTE
"""The number of joins that fills all bounded tables, so that memory must be flat afterwards."""
BURST = 200_000
BURST_PER_RECORD = 1_000
TURN_S = 0.02
RATE_STEP = 1.2
RATE_SECONDS = 15
RATE_P99_MS = 1_000.0


class Paced(NamedTuple):
    """The results of an even stream of commands."""

    latency: LatencyHistogram
    memory: Growth


def figures(minutes: float) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, DPUS_PER_ZONE)
        return uvloop.run(_measure(data, round(minutes * PER_MINUTE)))


async def _measure(data: Path, paced_joins: int) -> list[Figure]:
    async with serving_plane(data, simulate=DPUS_PER_ZONE) as plane:
        await all_up_to_date(plane, ZONES, NODES, DPUS)
        tune_garbage_collector()
        one_by_one = await joined_one_by_one(plane, NODES, SINGLE_JOINS)
        known = NODES + SINGLE_JOINS
        await _paced(plane, _joins(WARM_UP, known), WARM_UP, known + WARM_UP)
        known += WARM_UP
        paced = await _paced(plane, _joins(paced_joins, known), paced_joins, known + paced_joins)
        known += paced_joins
        churned = await _churned(plane, known, round(paced_joins * CHURN_SHARE))
        rate = await _highest_rate(plane, known)
        burst_s = await _burst(plane, known)
        wrong = await differences(plane)
    return [*_one_by_one(one_by_one), *_streams(paced, churned, paced_joins), *_afterwards(rate, burst_s, wrong)]


def _one_by_one(times_ms: list[float]) -> list[Figure]:
    name = f"one join to {DPUS:,} DPUs in {ZONES} zones"
    return [
        Figure(f"{name}, p50", percentile(times_ms, 0.5), "ms", aim=60.0, better="lower"),
        Figure(f"{name}, p99", percentile(times_ms, 0.99), "ms", aim=250.0, better="lower"),
    ]


def _streams(paced: Paced, churned: Paced, paced_joins: int) -> list[Figure]:
    name = f"{PER_MINUTE:,} joins a minute for {paced_joins / PER_MINUTE:g} min to {DPUS:,} DPUs"
    same = "the same, nodes joining and leaving"
    flat = 2.0 if paced_joins >= FLAT_AFTER else None
    return [
        Figure(f"{name}, p50", paced.latency.quantile(0.5), "ms", better="lower"),
        Figure(f"{name}, p99", paced.latency.quantile(0.99), "ms", aim=1000.0, better="lower"),
        Figure("memory for each node that joins", paced.memory.per_item_bytes, "bytes", better="lower"),
        Figure(f"{same}, p99", churned.latency.quantile(0.99), "ms", aim=1000.0, better="lower"),
        Figure(f"{same}: memory for each command", churned.memory.per_item_bytes, "bytes", better="lower"),
        Figure(f"{same}: memory", churned.memory.percent_a_minute, "% a minute", aim=flat, better="lower"),
    ]


def _afterwards(rate: float, burst_s: float, wrong: int) -> list[Figure]:
    name = f"{BURST:,} joins in one burst"
    return [
        Figure(f"joins and leaves held at p99 {RATE_P99_MS:g} ms to {DPUS:,} DPUs", rate, "/min"),
        Figure(f"{name}, until on every one of {DPUS:,} DPUs", burst_s, "s", aim=10.0, better="lower"),
        Figure("DPUs that differ from the log afterwards", wrong, "DPUs", aim=0.0, better="lower"),
    ]


def _joins(count: int, first: int, per_record: int = 1) -> Iterator[NodesJoined]:
    return joins(count, ZONES, per_record, first=first, seed=first)


async def joined_one_by_one(
    plane: Plane, first: int, count: int, *, zones: int = ZONES, dpus: int = DPUS
) -> list[float]:
    """Milliseconds of each join until the last DPU has applied it."""
    assert plane.relay is not None
    applied, now_s = plane.relay.latency[Level.APPLIED], asyncio.get_running_loop().time
    times_ms = []
    for event in joins(count, zones, per_record=1, first=first, seed=first):
        before, began_s = applied.count, now_s()
        await submit(plane, event)
        await until(lambda before=before: applied.count >= before + dpus)  # type: ignore[misc]
        times_ms.append((now_s() - began_s) * 1e3)
    return times_ms


async def _paced(
    plane: Plane,
    commands: Iterable[NodesJoined | NodesLeft],
    count: int,
    nodes: int,
    per_minute: float = PER_MINUTE,
) -> Paced:
    """Send commands at an even pace, independent of the time that each takes; return when every DPU has the rules of
    all nodes.

    Memory is sampled from the middle on.
    """
    assert plane.relay is not None
    latency = plane.relay.latency[Level.APPLIED] = LatencyHistogram()
    now_s = asyncio.get_running_loop().time
    memory, began_s, started = Growth(), now_s(), 0
    async with asyncio.TaskGroup() as tasks:
        for event in commands:
            if started == count // 2:
                memory = Growth()
            tasks.create_task(submit(plane, event))
            started += 1
            memory.look()
            while (now_s() - began_s) * per_minute / 60 < started:
                await asyncio.sleep(TURN_S)
    await all_up_to_date(plane, ZONES, nodes, DPUS)
    memory.end(count - count // 2)
    return Paced(latency, memory)


async def _churned(plane: Plane, known: int, count: int) -> Paced:
    """The same nodes join and leave repeatedly, within a budget that allows it."""
    await _unlimited_leaves(plane)
    rounds = max(1, count // (2 * CHURNED))
    return await _paced(plane, _joins_and_leaves(known, rounds), rounds * 2 * CHURNED, known)


def _joins_and_leaves(first: int, rounds: int) -> Iterator[NodesJoined | NodesLeft]:
    for _ in range(rounds):
        together = list(_joins(CHURNED, first))
        yield from together
        yield from leaves(together)


async def _highest_rate(plane: Plane, known: int) -> float:
    """The highest rate, in commands a minute, at which a change reaches every DPU within the limit; 0 if none does."""
    held, rate = 0.0, PER_MINUTE / RATE_STEP
    while True:
        rounds = math.ceil(rate / 60 * RATE_SECONDS / (2 * CHURNED))
        paced = await _paced(plane, _joins_and_leaves(known, rounds), rounds * 2 * CHURNED, known, rate)
        if paced.latency.quantile(0.99) > RATE_P99_MS:
            return held
        held, rate = rate, rate * RATE_STEP


async def _unlimited_leaves(plane: Plane) -> None:
    """Two approvers allow any number of nodes to leave."""
    budget = BudgetSet(envelope("budget", "bench", new_id()), "denied-by-leave", 1_000, 0)
    asked = await plane.replica.submit(FLEET_0, b"", budget, timeout_s=PATIENCE_S)
    hold = plane.states.fleet.holds.rows[str(asked.outcome.result["hold"])]
    for actor in ("approver-1", "approver-2"):
        approval = HoldApproved(envelope("hold", actor, new_id()), hold.id, hold.hash)
        await plane.replica.submit(FLEET_0, b"", approval, timeout_s=PATIENCE_S)


async def _burst(plane: Plane, known: int) -> float:
    """Seconds from the first join until the last DPU has all of them."""
    now_s = asyncio.get_running_loop().time
    events = list(_joins(BURST, known, BURST_PER_RECORD))
    began_s = now_s()
    await asyncio.gather(*(submit(plane, event) for event in events))
    await all_up_to_date(plane, ZONES, known + BURST, DPUS)
    return now_s() - began_s
