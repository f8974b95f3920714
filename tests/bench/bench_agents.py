"""From a join to 2,000 real agents in one process, each with its own WebSocket and table, connected to one relay.

The bench runs without TLS, and then with certificates on both sides. Each time a bare program on as many sockets is
measured too. The garbage collector of the plane is set as in a serving process. That of the agents is off: on a device
an agent has a small process to itself, and one collector for 2,000 agents would take a quarter of their time.

Then 1,000 more agents connect to a frozen zone, so they have no table. When the zone thaws, each is sent the whole
table of 200,000 nodes. Their addresses are consecutive, so few prefixes cover them. In a second run every twentieth
address is missing, which makes the table some ten thousand prefixes. A device needs tens of milliseconds to apply them.
A thousand real devices work in parallel, but here agents share a core, so fewer connect and their own time is printed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from deploy.process.plane import Plane
from deploy.process.run import tune_garbage_collector
from deploy.tls.certificates import Certificates
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.agents.table import AgentTable
from drivers.backends.simulated import SimulatedDevice
from drivers.relays.latency import LatencyHistogram
from drivers.simulators.simulator import NAMING
from drivers.wire.agent_messages import Refusal
from drivers.wire.relay_messages import Frame, decode, encode_frame
from drivers.wire.websocket import Dialer
from eventstore.ids import envelope
from eventstore.log import FLEET_0
from projections.fleet.tables.zone_table import snapshot
from schemas.events import WritesFrozen, WritesThawed
from tests.bench.apart import apart, beside
from tests.bench.bare_sockets import round_trips
from tests.bench.cert_files import CertFiles, issue
from tests.bench.figures import Figure
from tests.bench.planes import PATIENCE_S, all_up_to_date, fill, serving_plane, until
from tests.bench.relayed import connected, relayed, timed_joins
from tests.bench.workload import new_id, zone_name

NODES = 20_000
RESYNC_NODES = 200_000
AGENTS_PER_ZONE = 1_000
CHANGED = (0, 1)
AGENTS = AGENTS_PER_ZONE * len(CHANGED)
CHANGES = 50
FEW_AGENTS, MISSING_EACH = 250, 20


class Resync(NamedTuple):
    """The results of sending whole tables to agents without a table."""

    agents: int
    connected_s: float
    resynced_s: float
    taken_s: float
    frame_bytes: int


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cert_files = issue(folder / "certs")
        apart(fill, folder / "changes", len(CHANGED), NODES, AGENTS_PER_ZONE)
        plain, safe = uvloop.run(_changes(folder / "changes", cert_files))
        bare_plain = apart(round_trips, AGENTS, CHANGES, None, None)
        bare_safe = apart(round_trips, AGENTS, CHANGES, cert_files["plane"], cert_files["simulator"])
        row = _resynced(folder / "row", AGENTS_PER_ZONE, 0)
        gaps = _resynced(folder / "gaps", FEW_AGENTS, MISSING_EACH)
    name = f"one join to {AGENTS:,} agents over sockets"
    return [
        *_change_figures(name, plain, bare_plain, aim_ms=120.0),
        *_change_figures(f"{name}, mutual TLS", safe, bare_safe, aim_ms=180.0),
        *_resync_figures("addresses in a row", row, aim_s=1.0),
        *_resync_figures(f"every {MISSING_EACH}th missing", gaps, aim_s=None),
    ]


def _change_figures(name: str, ours: LatencyHistogram, bare: LatencyHistogram, aim_ms: float) -> list[Figure]:
    peer = "bare uvloop: write, read"
    return [
        Figure(f"{name}, {text}", ours.quantile(share), "ms", bare.quantile(share), peer, aim, "lower")
        for text, share, aim in (("p50", 0.5, None), ("p99", 0.99, aim_ms))
    ]


def _resync_figures(kind: str, resync: Resync, aim_s: float | None) -> list[Figure]:
    name = f"full resync of {resync.agents:,} agents at {RESYNC_NODES:,} nodes, {kind}"
    return [
        Figure(name, resync.resynced_s, "s", aim=aim_s, better="lower"),
        Figure(f"{name}: CPU of each device", resync.taken_s * 1e3, "ms", better="lower"),
        Figure(f"{name}: sent", resync.frame_bytes * resync.agents / 1e6, "MB", better="lower"),
        Figure(f"{resync.agents:,} agents connect", resync.connected_s, "s", better="lower"),
    ]


def _resynced(data: Path, agents: int, missing_each: int) -> Resync:
    apart(fill, data, 1, RESYNC_NODES, agents, missing_each)
    return uvloop.run(_resync(data, agents))


async def _changes(data: Path, cert_files: dict[str, CertFiles]) -> tuple[LatencyHistogram, LatencyHistogram]:
    async with serving_plane(data) as plane:
        tune_garbage_collector()
        found = []
        for number, (ours, theirs) in enumerate(((None, None), (cert_files["plane"], cert_files["simulator"]))):
            known = NODES + number * CHANGES
            async with relayed(plane, ours) as (relay, port):
                with beside(_run_agents, port, CHANGED, theirs, AGENTS_PER_ZONE):
                    await until(lambda relay=relay: connected(relay) == AGENTS)  # type: ignore[misc]
                    await all_up_to_date(plane, len(CHANGED), known, AGENTS)
                    found.append(await timed_joins(plane, relay, CHANGES, len(CHANGED), AGENTS, first=known))
    plain, safe = found
    return plain, safe


async def _resync(data: Path, agents: int) -> Resync:
    async with serving_plane(data) as plane:
        zone = zone_name(0)
        await _say(plane, WritesFrozen(envelope("freeze", "bench", new_id()), zone))
        async with relayed(plane, None) as (relay, port):
            with beside(_run_agents, port, (0,), None, agents):
                await until(lambda: connected(relay) > 0)
                began = time.perf_counter()
                await until(lambda: connected(relay) == agents)
                connected_s = time.perf_counter() - began
                began = time.perf_counter()
                await _say(plane, WritesThawed(envelope("thaw", "bench", new_id()), zone))
                await all_up_to_date(plane, 1, RESYNC_NODES, agents)
                resynced_s = time.perf_counter() - began
        frame = encode_frame(plane.replica.generation, snapshot(plane.states.fleet, zone))
    return Resync(agents, connected_s, resynced_s, await _taken_s(frame), len(frame))


async def _taken_s(frame: bytes) -> float:
    """The seconds that one agent needs to apply a whole table."""
    limits = dict.fromkeys(("apply_s", "read_back_s", "slow_s"), PATIENCE_S)
    held = AgentTable(SimulatedDevice(rng=random.Random(7)), MemoryTableStore(), **limits)
    await held.load()
    began = time.process_time()
    message = decode(frame)
    assert isinstance(message, Frame)
    taken = await held.take(message, lambda: None)
    assert not isinstance(taken, Refusal), taken
    return time.process_time() - began


async def _say(plane: Plane, event: WritesFrozen | WritesThawed) -> None:
    answer = await plane.replica.submit(FLEET_0, b"", event, timeout_s=PATIENCE_S)
    assert answer.outcome.code == "done", answer


def _run_agents(port: int, zones: Sequence[int], cert_files: CertFiles | None, each: int) -> None:
    gc.disable()
    uvloop.run(_agents(f"127.0.0.1:{port}", zones, cert_files, each))


async def _agents(relay: str, zones: Sequence[int], cert_files: CertFiles | None, each: int) -> None:
    rng = random.Random(6)
    dialing = Dialer(None if cert_files is None else Certificates(*cert_files).client_context)
    async with dialing as dialer, asyncio.TaskGroup() as tasks:
        for zone in map(zone_name, zones):
            for number in range(each):
                identity = AgentIdentity(zone, NAMING.dpu.format(zone=zone, number=number), "boot-1")
                device = SimulatedDevice(rng=rng)
                agent = Agent(identity, (relay,), dial=dialer.dial, device=device, store=MemoryTableStore(), rng=rng)
                tasks.create_task(agent.run())
