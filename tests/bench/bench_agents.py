"""From a join to 2,000 agents that are real: each its own WebSocket and table, all in one process, against one relay.

Then 1,000 more come at once with nothing, and are sent the whole table each.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from deploy.plane import Plane
from drivers.agent import Agent, Identity
from drivers.agent_store import MemoryStore
from drivers.backends.simulated import SimulatedDevice
from drivers.latency import Histogram
from drivers.relay import Relay, RelaySettings
from drivers.replica_rules import ReplicaRules
from drivers.reports import Level
from drivers.simulator import NAMING
from drivers.websocket import AgentListener, Dialer
from tests.bench.apart import apart, beside
from tests.bench.figures import Figure
from tests.bench.planes import all_up_to_date, fill, serving_plane, submit, until
from tests.bench.workload import joins, now_ms, zone_name

NODES = 20_000
AGENTS_PER_ZONE = 1_000
FIRST, RETURNING = (0, 1), (2,)
AGENTS = AGENTS_PER_ZONE * len(FIRST)
CHANGES = 50
SETTINGS = RelaySettings(handshakes_per_second=2_000, handshakes_at_once=4_000)
"""All may come at once: here the work counts, and not how it is spread."""


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, len(FIRST + RETURNING), NODES, AGENTS_PER_ZONE)
        return uvloop.run(_measure(data))


async def _measure(data: Path) -> list[Figure]:
    async with serving_plane(data) as plane, asyncio.TaskGroup() as tasks:
        rng = random.Random(5)
        rules = ReplicaRules(plane.replica)
        relay = plane.relay = Relay(rules, name="bench", now_ms=now_ms, rng=rng, settings=SETTINGS)
        running = tasks.create_task(relay.run())
        async with AgentListener(relay.serve, relay.admit, host="127.0.0.1", port=0) as listener:
            with beside(_run_agents, listener.port, FIRST):
                await until(lambda: _connected(relay) == AGENTS)
                await all_up_to_date(plane, len(FIRST), NODES, AGENTS)
                latency = await _change(plane, relay)
                with beside(_run_agents, listener.port, RETURNING):
                    await until(lambda: _connected(relay) > AGENTS)
                    began = time.perf_counter()
                    returned = AGENTS + AGENTS_PER_ZONE * len(RETURNING)
                    await until(lambda: _connected(relay) == returned)
                    await all_up_to_date(plane, len(FIRST + RETURNING), NODES + CHANGES, returned)
                    resync_s = time.perf_counter() - began
        running.cancel()
    name = f"one join to {AGENTS:,} agents over sockets"
    return [
        Figure(f"{name}, p50", latency.quantile(0.5), "ms", better="lower"),
        Figure(f"{name}, p99", latency.quantile(0.99), "ms", better="lower"),
        Figure("1,000 agents come back with nothing", resync_s, "s", better="lower"),
    ]


async def _change(plane: Plane, relay: Relay) -> Histogram:
    """Joins one by one, each when the one before is everywhere; the time to each agent."""
    latency = relay.latency[Level.APPLIED] = Histogram()
    for number, event in enumerate(joins(CHANGES, len(FIRST), per_record=1, first=NODES), start=1):
        await submit(plane, event)
        await until(lambda number=number: latency.count >= number * AGENTS)  # type: ignore[misc]
    return latency


def _connected(relay: Relay) -> int:
    return sum(len(zone.speakers) for zone in relay.zones.values())


def _run_agents(port: int, zones: Sequence[int]) -> None:
    uvloop.run(_agents(f"127.0.0.1:{port}", zones))


async def _agents(relay: str, zones: Sequence[int]) -> None:
    rng = random.Random(6)
    async with Dialer() as dialer, asyncio.TaskGroup() as tasks:
        for zone in map(zone_name, zones):
            for number in range(AGENTS_PER_ZONE):
                identity = Identity(zone, NAMING.dpu.format(zone=zone, number=number), "boot-1")
                device = SimulatedDevice(rng=rng)
                agent = Agent(identity, (relay,), dial=dialer.dial, device=device, store=MemoryStore(), rng=rng)
                tasks.create_task(agent.run())
