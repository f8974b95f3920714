"""Replaying a log of batched joins out of a real Kafka, in memory, a million joins a thousand to a record.

The peer is Kafka Streams in its fastest form: the same records from the same brokers, on one thread, both stores in
memory, no changelog, a decoder written by hand, and a JVM that has run all of it before. It is also given joins one to
a record, which is how programs for it are written. Ours folds the zones, and then the zones and fleet at once, in a
fresh process each. All final nodes are compared field by field. Only ours stores the outcome of every command, the
outbox of records for fleet, and a running hash of the log. A replica also computes digests of its rows once a second.
The peer has no such digests, so they are measured separately.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.folding.fold import Fold
from eventstore.kafka.log import KafkaLog
from eventstore.log import FLEET, FLEET_0, ZONES
from eventstore.replica_limits import ReplicaLimits
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.fleet.fold import FleetFold
from projections.zones.fold import ZonesFold
from tests.bench.apart import apart
from tests.bench.brokers import APPEND_S, append_joins, cluster, new_prefix
from tests.bench.figures import Figure
from tests.bench.folds_compared import Rate, Stopwatch, rows_of
from tests.bench.kafka_streams import fold_by_streams
from tests.bench.workload import forwards, joins, now_ms

JOINS = 1_000_000
PER_RECORD = 1_000
ZONES_COUNT = 200
APPENDS_AT_ONCE = 50
SINGLES_AT_ONCE = 10_000
ROUNDS = 4
RUNS = 3
SINGLE = 200_000
FOLD_S = 300.0
UNDIGESTED = ReplicaLimits(save_every_s=FOLD_S, save_rows=10 * JOINS, save_rows_behind=10 * JOINS)


def figures() -> list[Figure]:
    prefix, single = new_prefix(), new_prefix()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "kafka") as bootstrap:
        apart(_fill, bootstrap, prefix)
        one = [apart(_replay, bootstrap, prefix, False, UNDIGESTED) for _ in range(RUNS)]
        both = [apart(_replay, bootstrap, prefix, True, UNDIGESTED) for _ in range(RUNS)]
        digested = apart(_replay, bootstrap, prefix, False, ReplicaLimits())
        peer = fold_by_streams(bootstrap, f"{prefix}.{ZONES}", "memory", JOINS, ROUNDS)
        apart(_fill_single, bootstrap, single)
        by_one = fold_by_streams(bootstrap, f"{single}.{ZONES}", "memory", SINGLE, ROUNDS).warm
    for rate in (*one, *both, digested, peer.cold):
        rate.check(peer.warm)
    zone, fleet = _best(one), _best(both)
    name, warm = "replay of joins out of Kafka", "Kafka Streams, warm"
    by_ones = "Kafka Streams, a record each"
    return [
        Figure(f"{name}, zone fold", zone.per_s, "joins/s", peer.warm.per_s, warm, 1e6),
        Figure(f"{name}, zone fold, per second of CPU", zone.per_cpu_s, "joins/s", peer.warm.per_cpu_s, warm),
        Figure(f"{name}, as times the peer's rate", zone.per_s / peer.warm.per_s, "times", aim=1.5),
        Figure(f"{name}, zone fold", zone.per_s, "joins/s", peer.cold.per_s, "Kafka Streams, fresh"),
        Figure(f"{name}, zone fold", zone.per_s, "joins/s", by_one.per_s, by_ones),
        Figure(f"{name}, as times the rate with a record each", zone.per_s / by_one.per_s, "times", aim=1.5),
        Figure(f"{name}, zone fold, digests too", digested.per_s, "joins/s", peer.warm.per_s, warm),
        Figure(f"{name}, zone and fleet folds", fleet.per_s, "joins/s", peer.warm.per_s, f"{warm}, zones only", 6e5),
    ]


def _best(rates: Sequence[Rate]) -> Rate:
    """The best of the peer's rounds: other load on the machine can only slow a round down."""
    return max(rates, key=lambda rate: rate.per_s)


def _fill(bootstrap: str, prefix: str) -> None:
    uvloop.run(append_joins(bootstrap, prefix, joins(JOINS, ZONES_COUNT, PER_RECORD), APPENDS_AT_ONCE))
    uvloop.run(_forward(bootstrap, prefix))


def _fill_single(bootstrap: str, prefix: str) -> None:
    uvloop.run(append_joins(bootstrap, prefix, joins(SINGLE, ZONES_COUNT, per_record=1), SINGLES_AT_ONCE))


async def _forward(bootstrap: str, prefix: str) -> None:
    """Append the records that a forwarder would append to fleet."""
    async with _open(bootstrap, prefix) as log:
        replica, _ = await _folded(log, [ZonesFold()], UNDIGESTED)
        for number, partition in enumerate(replica.partitions(ZONES)):
            for event in forwards(replica.state(partition), number):
                await log.append(FLEET_0, b"", encode(event), timeout_s=APPEND_S)


def _open(bootstrap: str, prefix: str) -> Any:
    return KafkaLog.open(TOPICS, bootstrap, topic_prefix=prefix, rng=random.Random(2), create=False)


def _replay(bootstrap: str, prefix: str, both: bool, limits: ReplicaLimits) -> Rate:
    return uvloop.run(_replay_by_replica(bootstrap, prefix, both, limits))


async def _replay_by_replica(bootstrap: str, prefix: str, both: bool, limits: ReplicaLimits) -> Rate:
    async with _open(bootstrap, prefix) as log:
        folds: list[Fold[Any]] = [ZonesFold(), FleetFold(log.partition_count)] if both else [ZonesFold()]
        replica, stopwatch = await _folded(log, folds, limits)
        if both:
            assert len(replica.state(FLEET_0).members.rows) == JOINS
        return stopwatch.rate(JOINS, rows_of(replica))


async def _folded(log: KafkaLog, folds: Sequence[Fold[Any]], limits: ReplicaLimits) -> tuple[Replica, Stopwatch]:
    """A replica that has folded the whole log, and the seconds from its first record."""
    rng, store = random.Random(3), DigestStore()
    replica = Replica(log, folds, store=store, name="bench", now_ms=now_ms, rng=rng, creates=False, limits=limits)
    with replica.watch(ZONES, FLEET) as watch:
        running = asyncio.create_task(replica.run())
        await watch.changed()
        stopwatch = Stopwatch()
        async with asyncio.timeout(FOLD_S):
            await replica.ready()
        stopwatch.stop()
    running.cancel()
    await asyncio.wait({running})
    return replica, stopwatch
