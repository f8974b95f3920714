"""A million nodes in a thousand zones: memory per node, start time, one join to all zones; and a join's cost among a
million nodes compared with a thousand.

The plane is measured in a process of its own, with a simulated DPU in every zone, once with many nodes and once with
few. The folds are also measured alone: one join through the zone fold, the forwarder, the fleet fold, the zone's table
and the delta that is sent, in memory.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from deploy.process.run import tune_garbage_collector
from eventstore.avro.codec import encode
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, Record
from projections.fleet.fold import FleetFold
from projections.fleet.tables.zone_table import delta, table
from projections.forwarding.zones_to_fleet import forward
from projections.zones.fold import ZonesFold
from tests.bench.apart import apart
from tests.bench.bench_join import joined_one_by_one
from tests.bench.figures import Figure, percentile
from tests.bench.memory import resident_bytes
from tests.bench.planes import all_up_to_date, fill, serving_plane
from tests.bench.workload import ZONES_0, folded, forwards, joins, now_ms, records, zone_name

MANY, FEW = 1_000_000, 1_000
ZONES = 1_000
SINGLE_JOINS = 40
CHANGES = 300


class PlaneFigures(NamedTuple):
    """The results of a plane of one size."""

    start_s: float
    memory_bytes: int
    join_ms: float


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_measured(Path(folder) / str(nodes), nodes) for nodes in (FEW, MANY))
    change_few, change_many = (apart(_change_ms, nodes) for nodes in (FEW, MANY))
    size, small = f"{MANY:,} nodes in {ZONES:,} zones", f"{FEW:,} nodes"
    per_node = (many.memory_bytes - few.memory_bytes) / (MANY - FEW)
    join = f"one join to all zones, {size}, p50"
    return [
        Figure(f"memory for each node, {size}", per_node, "bytes", better="lower"),
        Figure(f"memory of the process, {size}", many.memory_bytes / 2**20, "MB", better="lower"),
        Figure(f"start from saved state, {size}", many.start_s, "s", few.start_s, small, better="lower"),
        Figure(join, many.join_ms, "ms", few.join_ms, small, better="lower"),
        Figure("one change at 1,000 members, through the folds", change_few, "ms", aim=1.0, better="lower"),
        Figure(f"one change at {MANY:,} members", change_many, "ms", change_few, small, 1.0, "lower"),
        Figure("the same, as times its cost at 1,000", change_many / change_few, "times", aim=2.0, better="lower"),
    ]


def _measured(data: Path, nodes: int) -> PlaneFigures:
    apart(fill, data, ZONES, nodes, 1)
    return apart(_look, data, nodes)


def _look(data: Path, nodes: int) -> PlaneFigures:
    return uvloop.run(_look_at_plane(data, nodes))


async def _look_at_plane(data: Path, nodes: int) -> PlaneFigures:
    began_s = time.perf_counter()
    async with serving_plane(data, simulate=1) as plane:
        start_s = time.perf_counter() - began_s
        await all_up_to_date(plane, ZONES, nodes, ZONES)
        memory_bytes = resident_bytes()
        tune_garbage_collector()
        times_ms = await joined_one_by_one(plane, nodes, SINGLE_JOINS, zones=ZONES, dpus=ZONES)
    return PlaneFigures(start_s, memory_bytes, percentile(times_ms, 0.5))


def _change_ms(nodes: int) -> float:
    """The median time of single joins, from the record to the delta of the zone's table."""
    log = records(joins(nodes, ZONES, per_record=1_000))
    zones = folded(ZONES_0, ZonesFold(), log)
    said = list(forwards(zones.state))
    fleet = folded(FLEET_0, FleetFold(1), records(said))
    mark, offset = said[-1].to_offset, len(log)
    gc.collect()
    gc.freeze()
    taken = []
    for number, event in enumerate(joins(CHANGES, ZONES, per_record=1, first=nodes)):
        since = table(fleet.state, zone_name(0)).version
        zone_record = Record(offset + number, now_ms(), b"", encode(event))
        began = time.perf_counter()
        mark = _one(zones, fleet, zone_record, mark)
        found = delta(fleet.state, zone_name(0), since)
        taken.append(time.perf_counter() - began)
        assert found is not None
        assert found.to_version > since
    return statistics.median(taken) * 1e3


def _one(zones: FoldedPartition, fleet: FoldedPartition, record: Record, mark: int) -> int:
    """Fold a join, forward it to fleet and fold the forwarded record; the mark after it."""
    zones.fold(record)
    event = forward(zones.state, 0, mark)
    assert event is not None
    fleet.fold(Record(fleet.position, record.timestamp_ms, b"", encode(event)))
    return event.to_offset
