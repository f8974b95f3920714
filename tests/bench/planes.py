"""Planes for benches: a log with nodes and DPUs on disk, and a plane in this process that serves it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from deploy.composition.roles import folds_of
from deploy.operations.audit.verification import compare_devices, refold_log
from deploy.process.decisions_process import DecisionsProcess
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.simulators.simulator import NAMING
from eventstore.avro.codec import encode
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES
from projections.fleet.tables.zone_table import table
from schemas.events import DpuRegistered, NodesJoined, NodesLeft
from tests.bench.workload import in_batches, joins, now_ms, zone_name

APPENDS_AT_ONCE = 5_000
PATIENCE_S = 300.0
POLL_S = 0.002
CHECK_S = 0.1
"""The interval of checks of all links."""


Place = Path | tuple[str, str]
"""The data folder of an embedded log, or the brokers and the topic prefix of one on Kafka."""


def fill(place: Place, zones: int, nodes: int, dpus_per_zone: int, missing_each: int = 0) -> None:
    """Create the log of a plane with so many nodes and DPUs in all, as the simulator would register them."""
    uvloop.run(_fill(place, zones, nodes, dpus_per_zone, missing_each))


async def _fill(place: Place, zones: int, nodes: int, dpus_per_zone: int, missing_each: int) -> None:
    async with serving_plane(place) as plane:
        per_record = min(1_000, max(1, nodes // zones))
        for events in in_batches(
            joins(nodes, zones, per_record, missing_each=missing_each), APPENDS_AT_ONCE // per_record or 1
        ):
            await asyncio.gather(*(append(plane, event) for event in events))
        for registrations in in_batches(_registrations(zones, dpus_per_zone), APPENDS_AT_ONCE):
            await asyncio.gather(*(append(plane, event) for event in registrations))
        await until(lambda: len(plane.states.fleet.members.rows) == nodes)
        if isinstance(place, Path):
            await until(lambda: all(each.position == each.saved_position for each in plane.replica.partitions_status()))


def _registrations(zones: int, dpus_per_zone: int) -> Iterator[DpuRegistered]:
    rng = random.Random(3)
    for zone in map(zone_name, range(zones)):
        for number in range(dpus_per_zone):
            dpu, node, serial, bmc = (text.format(zone=zone, number=number) for text in NAMING)
            said = envelope(f"dpu/{dpu}", "bench", uuid7(now_ms(), rng))
            yield DpuRegistered(said, zone, dpu, node, serial, bmc)


@asynccontextmanager
async def serving_plane(place: Place, *, simulate: int = 0) -> AsyncIterator[Plane]:
    """A plane of every role in this process."""
    listeners = dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0")
    log = {"data": place} if isinstance(place, Path) else dict(zip(("kafka", "topic_prefix"), place, strict=True))
    settings = load_settings({**log, "simulate": simulate, "name": "bench", **listeners}, None, {})
    async with Plane.start(settings, now_ms=now_ms, rng=random.Random(4)) as plane:
        yield plane


async def append(plane: Plane, event: NodesJoined | DpuRegistered) -> None:
    """Append a statement about a zone."""
    partition = plane.replica.partition_for(ZONES, event.zone)
    await plane.log.append(partition, event.zone.encode(), encode(event), timeout_s=PATIENCE_S)


async def submit(plane: Plane, event: NodesJoined | NodesLeft) -> None:
    """Send a command through the plane, up to its answer."""
    partition = plane.replica.partition_for(ZONES, event.zone)
    answer = await plane.replica.submit(partition, event.zone.encode(), event, timeout_s=PATIENCE_S)
    assert answer.outcome.code == "done", answer


async def until(done: Callable[[], bool], every_s: float = POLL_S, patience_s: float = PATIENCE_S) -> None:
    """Poll every few milliseconds until the condition holds."""
    async with asyncio.timeout(patience_s):
        while not done():
            await asyncio.sleep(every_s)


async def all_up_to_date(plane: Plane, zones: int, nodes: int, dpus: int) -> None:
    """Return when fleet has so many nodes, and so many DPUs have their table."""
    await until(lambda: len(plane.states.fleet.members.rows) == nodes)
    await until(lambda: _up_to_date(plane, zones) == dpus, CHECK_S)


def _up_to_date(plane: Plane, zones: int) -> int:
    """Computed from the state of each link: a scan of all DPUs takes longer than a change takes to reach them."""
    assert plane.relay is not None
    served, epoch, fleet = plane.relay.zones, plane.replica.generation, plane.states.fleet
    count = 0
    for zone in map(zone_name, range(zones)):
        now = table(fleet, zone)
        wanted = (epoch, now.version, now.digest)
        states = (found for session in served[zone].sessions for found in session.states()) if zone in served else ()
        count += sum(dpus for state, dpus in states if (state.epoch, state.applied, state.digest) == wanted)
    return count


async def all_decisions_written(plane: Plane) -> None:
    """Return when the decisions topic of a plane on Kafka has the decisions of `fill`."""
    process = plane.parts.decisions
    assert isinstance(process, DecisionsProcess)
    await until(lambda: process.reports > 0 and process.lag == 0, CHECK_S)


async def differences(plane: Plane) -> int:
    """DPUs whose table differs from the log, folded afresh."""
    assert plane.relay is not None
    fresh = await refold_log(plane.log, folds_of(plane.log.partition_count), ())
    compared = compare_devices(fresh, plane.replica.lineage, plane.relay.devices())
    return len(compared.differences) + len(compared.absent)
