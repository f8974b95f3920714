"""Joins to 1,000 real agents of which 5 % are dead and 5 % are a hundred times slower: the time to each of the others,
before and after that.

The others share a process, and so do the slow ones and the dead ones. A dead process does nothing, as a machine whose
kernel still acknowledges packets. Times are taken when a device gets its table, on the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from deploy.process.plane import Plane
from deploy.process.run import tune_garbage_collector
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import DeviceFaults, SimulatedDevice
from drivers.simulators.simulator import NAMING
from drivers.wire.websocket import Dialer
from projections.rules.device_table import DeviceTable
from projections.rules.rule import SetStep
from tests.bench.apart import apart, beside, counter, numbers
from tests.bench.figures import Figure, percentile
from tests.bench.planes import all_up_to_date, fill, serving_plane, submit, until
from tests.bench.relayed import connected, relayed
from tests.bench.workload import joins, zone_name

AGENTS, SICK, NODES = 1_000, 50, 5_000
OTHERS = AGENTS - 2 * SICK
JOINS, ROUNDS = 15, 8
LATENCY_MS, SLOWER = 5.0, 100
ZONE = zone_name(0)
ASLEEP_S = 86_400.0


_NUMBERS = {"dead": range(SICK), "slow": range(SICK, 2 * SICK), "others": range(2 * SICK, AGENTS)}


class _Shared(NamedTuple):
    """Numbers that the processes share: whether the sick agents are sick, how many tables the devices of the others
    have got, and when they got them."""

    are_sick: Any
    count: Any
    times: Any


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "plane"
        apart(fill, folder, 1, NODES, AGENTS)
        healthy, sick = uvloop.run(_times_ms(folder))
    name, peer = f"one join to {OTHERS} agents beside {SICK} dead and {SICK} slow ones", "beside healthy ones"
    p99 = [percentile(times, 0.99) for times in (sick, healthy)]
    return [
        Figure(f"{name}, p50", percentile(sick, 0.5), "ms", percentile(healthy, 0.5), peer, better="lower"),
        Figure(f"{name}, p99", p99[0], "ms", p99[1], peer, better="lower"),
        Figure(
            f"{name}: p99 above that beside healthy ones", 100 * (p99[0] / p99[1] - 1), "%", aim=5.0, better="lower"
        ),
    ]


async def _times_ms(folder: Path) -> tuple[list[float], list[float]]:
    """The times to the others, beside healthy agents and beside sick ones."""
    shared = _Shared(counter(), counter(), numbers(OTHERS * (JOINS * (2 * ROUNDS + 1) + 1)))
    async with serving_plane(folder) as plane, relayed(plane, None) as (relay, port):
        tune_garbage_collector()
        dead, slow, others = ((_run_agents, port, kind, shared) for kind in ("dead", "slow", "others"))
        with beside(*dead), beside(*slow), beside(*others):
            await until(lambda: connected(relay) == AGENTS)
            await all_up_to_date(plane, 1, NODES, AGENTS)
            await _joined_ms(plane, shared, NODES, JOINS)  # warms up
            healthy = await _joined_ms(plane, shared, NODES + JOINS, JOINS * ROUNDS)
            shared.are_sick.value = 1
            sick = await _joined_ms(plane, shared, NODES + JOINS * (ROUNDS + 1), JOINS * ROUNDS)
    return healthy, sick


async def _joined_ms(plane: Plane, shared: _Shared, first: int, joined: int) -> list[float]:
    """Send joins one by one, each after the others have the former one. Returns the time to each of them."""
    found: list[float] = []
    for event in joins(joined, 1, per_record=1, first=first):
        before, began = shared.count.value, time.perf_counter()
        await submit(plane, event)
        await until(lambda before=before: shared.count.value >= before + OTHERS)  # type: ignore[misc]
        found += [(at - began) * 1e3 for at in shared.times[before : before + OTHERS]]
    return found


class _Device(SimulatedDevice):
    """A device of the others, which notes when it has got a table."""

    def __init__(self, rng: random.Random, shared: _Shared) -> None:
        super().__init__(DeviceFaults(latency_ms=LATENCY_MS), rng=rng)
        self._shared = shared

    def _take(self, table: DeviceTable) -> bool:
        taken = super()._take(table)
        self._shared.times[self._shared.count.value] = time.perf_counter()
        self._shared.count.value += 1
        return taken


class _SickDevice(SimulatedDevice):
    """A device that becomes slow, or whose machine stops, at its next table once devices are to be sick."""

    def __init__(self, rng: random.Random, shared: _Shared, *, dies: bool) -> None:
        super().__init__(DeviceFaults(latency_ms=LATENCY_MS), rng=rng)
        self._shared = shared
        self._dies = dies

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        if self._shared.are_sick.value:
            if self._dies:
                time.sleep(ASLEEP_S)
            self._faults = DeviceFaults(latency_ms=LATENCY_MS * SLOWER)
        return super().apply(steps, table)


def _run_agents(port: int, kind: str, shared: _Shared) -> None:
    gc.disable()
    uvloop.run(_agents(f"127.0.0.1:{port}", kind, shared))


async def _agents(relay: str, kind: str, shared: _Shared) -> None:
    rng = random.Random(6)
    async with Dialer() as dialer, asyncio.TaskGroup() as tasks:
        for number in _NUMBERS[kind]:
            identity = AgentIdentity(ZONE, NAMING.dpu.format(zone=ZONE, number=number), "boot-1")
            device = _Device(rng, shared) if kind == "others" else _SickDevice(rng, shared, dies=kind == "dead")
            agent = Agent(identity, (relay,), dial=dialer.dial, device=device, store=MemoryTableStore(), rng=rng)
            tasks.create_task(agent.run())
