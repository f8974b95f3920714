"""One join at a time on Kafka with three brokers, until it is on every one of 200,000 simulated DPUs in 200 zones.

The plane, its DPUs and the brokers share one machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import uvloop

from deploy.process.run import tune_garbage_collector
from tests.bench.apart import apart
from tests.bench.bench_join import DPUS, DPUS_PER_ZONE, NODES, SINGLE_JOINS, ZONES, joined_one_by_one
from tests.bench.brokers import cluster, new_prefix
from tests.bench.figures import Figure, percentile
from tests.bench.planes import Place, all_decisions_written, all_up_to_date, differences, fill, serving_plane


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "kafka") as brokers:
        place = (brokers, new_prefix())
        apart(fill, place, ZONES, NODES, DPUS_PER_ZONE)
        return uvloop.run(_measure(place))


async def _measure(place: Place) -> list[Figure]:
    async with serving_plane(place, simulate=DPUS_PER_ZONE) as plane:
        await all_up_to_date(plane, ZONES, NODES, DPUS)
        await all_decisions_written(plane)
        tune_garbage_collector()
        times_ms = await joined_one_by_one(plane, NODES, SINGLE_JOINS)
        wrong = await differences(plane)
    name = f"one join on Kafka to {DPUS:,} DPUs in {ZONES} zones"
    return [
        Figure(f"{name}, p50", percentile(times_ms, 0.5), "ms", aim=60.0, better="lower"),
        Figure(f"{name}, p99", percentile(times_ms, 0.99), "ms", aim=250.0, better="lower"),
        Figure("DPUs that differ from the log on Kafka afterwards", wrong, "DPUs", aim=0.0, better="lower"),
    ]
