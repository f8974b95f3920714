"""The return of a relay to 1,000 real agents, which all dial it at the same moment: to agents without a table, with the
present table, and with a table that is 600 versions old.

The agents share one process, in which they wait for a gate instead of their backoff: that spreads them over seconds,
and this bench measures the work. The relay shares its process with the plane, which is idle meanwhile. Every other
address is missing, so that each version adds a prefix to the table.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from deploy.process.plane import Plane
from deploy.process.run import tune_garbage_collector
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import SimulatedDevice
from drivers.simulators.simulator import NAMING
from drivers.wire.links import Link
from drivers.wire.websocket import Dialer
from projections.fleet.tables.zone_table import table
from tests.bench.apart import apart, beside, counter
from tests.bench.figures import Figure
from tests.bench.planes import all_up_to_date, fill, serving_plane, submit, until
from tests.bench.relayed import connected, relayed
from tests.bench.workload import joins, zone_name

AGENTS, NODES, BEHIND, MISSING_EACH = 1_000, 5_000, 600, 2
ZONE = zone_name(0)
GATE_S = 0.005


class Return(NamedTuple):
    """Until all agents have the present table: the time, the CPU time of the relay, and the bytes that agents got."""

    took_s: float
    cpu_s: float
    received: int


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "plane"
        apart(fill, folder, 1, NODES, AGENTS, MISSING_EACH)
        versions, whole, same, behind = uvloop.run(_returns(folder))
    peer = "to agents without a table"
    found = []
    for what, measured in (("none behind", same), (f"all behind by {versions} versions", behind)):
        name = f"a relay returns to {AGENTS:,} agents, {what}"
        found += [
            Figure(name, measured.took_s, "s", whole.took_s, peer, better="lower"),
            Figure(f"{name}: CPU of the relay", measured.cpu_s, "s", whole.cpu_s, peer, better="lower"),
            Figure(f"{name}: sent", measured.received / 1e6, "MB", whole.received / 1e6, peer, better="lower"),
        ]
    return found


async def _returns(folder: Path) -> tuple[int, Return, Return, Return]:
    gate, received, port = counter(), counter(), _free_port()
    received.value = -1
    async with serving_plane(folder) as plane:
        tune_garbage_collector()
        with beside(_run_agents, port, gate, received):
            await until(lambda: received.value == 0)  # the agents have started
            whole = await _return(plane, port, gate, received, NODES)
            same = await _return(plane, port, gate, received, NODES)
            before = table(plane.states.fleet, ZONE).version
            await _advance(plane)
            versions = table(plane.states.fleet, ZONE).version - before
            behind = await _return(plane, port, gate, received, NODES + BEHIND)
    return versions, whole, same, behind


async def _return(plane: Plane, port: int, gate: Any, received: Any, nodes: int) -> Return:
    """Start a relay, open the gate, and stop the relay once all agents have the present table."""
    async with relayed(plane, None, port) as (relay, _):
        received_before, cpu_before, began = received.value, time.process_time(), time.perf_counter()
        gate.value = 1
        await until(lambda: connected(relay) == AGENTS)
        await all_up_to_date(plane, 1, nodes, AGENTS)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_before
        gate.value = 0
        return Return(took_s, cpu_s, received.value - received_before)


async def _advance(plane: Plane) -> None:
    """Join nodes one by one, so that each makes a version of the table."""
    for number, event in enumerate(
        joins(BEHIND, 1, per_record=1, first=NODES, missing_each=MISSING_EACH), start=NODES + 1
    ):
        await submit(plane, event)
        await until(lambda number=number: len(plane.states.fleet.members.rows) == number)  # type: ignore[misc]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run_agents(port: int, gate: Any, received: Any) -> None:
    gc.disable()
    uvloop.run(_agents(f"127.0.0.1:{port}", gate, received))


async def _agents(relay: str, gate: Any, received: Any) -> None:
    rng, is_open = random.Random(6), asyncio.Event()
    async with Dialer() as dialer, asyncio.TaskGroup() as tasks:
        tasks.create_task(_watch(gate, is_open))

        async def dial(address: str) -> Link:
            await is_open.wait()
            return _CountedLink(await dialer.dial(address), received)

        for number in range(AGENTS):
            identity = AgentIdentity(ZONE, NAMING.dpu.format(zone=ZONE, number=number), "boot-1")
            device = SimulatedDevice(rng=rng)
            agent = Agent(identity, (relay,), dial=dial, device=device, store=MemoryTableStore(), rng=rng)
            tasks.create_task(agent.run())
        received.value = 0


async def _watch(gate: Any, is_open: asyncio.Event) -> None:
    """Open the gate when the bench says so."""
    while True:
        (is_open.set if gate.value else is_open.clear)()
        await asyncio.sleep(GATE_S)


class _CountedLink:
    """A link that adds the bytes of its messages to a counter."""

    def __init__(self, link: Link, received: Any) -> None:
        self.peer = link.peer
        self._link = link
        self._received = received

    @property
    def backlog(self) -> int:
        return self._link.backlog

    def send(self, message: bytes) -> None:
        self._link.send(message)

    async def receive(self) -> bytes:
        message = await self._link.receive()
        self._received.value += len(message)
        return message

    def abort(self) -> None:
        self._link.abort()

    async def close(self) -> None:
        await self._link.close()
