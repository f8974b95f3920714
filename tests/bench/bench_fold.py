"""Single joins, one to a record, folded out of a real Kafka by one process that saves its state in RocksDB.

The peer, quix-streams, reads the same records from the same brokers with the same decoder, and keeps the latest record
of each node and how many nodes each zone has in its own RocksDB; no changelog, which only slows it. Both save once a
second. Measured is from the first record folded until all are saved, in a fresh process each; records a second of CPU
time are given too, as the brokers take theirs from the same machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from deploy.kafka.brokers import Brokers
from deploy.kafka.jars import cache_folder
from eventstore.codec import decode, encode
from eventstore.kafka import KafkaLog
from eventstore.log import DEFAULT_PARTITION_COUNT, ZONES, Partition, partition_of
from eventstore.origin import establish
from eventstore.replica import Replica
from eventstore.rocks_store import RocksStore
from projections.zone import ZoneFold
from schemas.events import NodesJoined
from tests.bench.apart import apart
from tests.bench.figures import Figure
from tests.bench.workload import in_batches, joins, now_ms

NODES = 200_000
ZONES_COUNT = 200
APPENDS_AT_ONCE = 10_000
FOLD_S = 120.0
EXTERNAL = "KAFKA_BOOTSTRAP_SERVERS"


class Rate(NamedTuple):
    """Records a second, of the clock and of CPU time."""

    per_s: float
    per_cpu_s: float


def figures() -> list[Figure]:
    prefix = f"bench-{random.SystemRandom().getrandbits(32):08x}"
    with tempfile.TemporaryDirectory() as folder, _cluster(Path(folder) / "kafka") as bootstrap:
        apart(_append_all, bootstrap, prefix)
        ours = apart(_fold, bootstrap, prefix, Path(folder) / "state")
        peer = apart(_fold_by_quix, bootstrap, prefix, Path(folder) / "quix")
    return [
        Figure("single joins folded out of Kafka, saved", ours.per_s, "joins/s", peer.per_s, "quix-streams", 80e3),
        Figure("the same, per second of CPU", ours.per_cpu_s, "joins/s", peer.per_cpu_s, "quix-streams"),
        Figure("the same, as times the peer's rate", ours.per_s / peer.per_s, "times", aim=2.0),
    ]


@contextmanager
def _cluster(data: Path) -> Iterator[str]:
    """Three brokers of our own, or those that the environment names."""
    if external := os.environ.get(EXTERNAL):
        yield external
        return
    brokers = Brokers(data, cache_folder(os.environ))
    with asyncio.Runner() as runner:
        try:
            runner.run(brokers.start())
            yield brokers.bootstrap
        finally:
            runner.run(brokers.stop())


def _append_all(bootstrap: str, prefix: str) -> None:
    uvloop.run(_append(bootstrap, prefix))


async def _append(bootstrap: str, prefix: str) -> None:
    rng = random.Random(1)
    async with KafkaLog.open(bootstrap, topic_prefix=prefix, rng=rng) as log:
        await establish(log, "bench", now_ms(), rng)

        async def append(event: NodesJoined) -> None:
            key = event.zone.encode()
            partition = Partition(ZONES, partition_of(key, log.partition_count))
            await log.append(partition, key, encode(event), timeout_s=30.0)

        for events in in_batches(joins(NODES, ZONES_COUNT, per_record=1), APPENDS_AT_ONCE):
            await asyncio.gather(*map(append, events))


def _fold(bootstrap: str, prefix: str, state: Path) -> Rate:
    return uvloop.run(_fold_by_replica(bootstrap, prefix, state))


async def _fold_by_replica(bootstrap: str, prefix: str, state: Path) -> Rate:
    rng = random.Random(2)
    store = RocksStore(state)
    async with KafkaLog.open(bootstrap, topic_prefix=prefix, rng=rng, create=False) as log:
        replica = Replica(log, [ZoneFold()], store=store, name="bench", now_ms=now_ms, rng=rng, creates=False)
        with replica.watch(ZONES) as watch:
            running = asyncio.create_task(replica.run())
            await watch.changed()
            stopwatch = _Stopwatch()
            before = sum(map(replica.position, replica.partitions(ZONES)))
            async with asyncio.timeout(FOLD_S):
                await replica.ready()
        running.cancel()
        await asyncio.wait({running})
        await replica.save()
        rate = stopwatch.rate(sum(map(replica.position, replica.partitions(ZONES))) - before)
    store.close()
    return rate


def _fold_by_quix(bootstrap: str, prefix: str, state: Path) -> Rate:
    from quixstreams import Application  # a second to import, and of use nowhere else

    app = Application(
        broker_address=bootstrap,
        consumer_group=prefix,
        auto_offset_reset="earliest",
        state_dir=state,
        use_changelog_topics=False,
        commit_interval=1.0,
        loglevel="ERROR",
    )
    stopwatch, folded = None, 0

    def fold(value: bytes, latest: Any) -> None:
        nonlocal stopwatch, folded
        stopwatch = stopwatch or _Stopwatch()
        folded += 1
        event = decode(value)
        if isinstance(event, NodesJoined):
            node = event.names[0]
            if latest.get(node) is None:
                latest.set("count", latest.get("count", 0) + 1)
            row = (event.envelope.issued_at_ms, event.envelope.command_id, event.addresses4.hex(), event.label_sets[0])
            latest.set(node, row)

    topic = app.topic(f"{prefix}.{ZONES}", key_deserializer="str", value_deserializer="bytes")
    app.dataframe(topic).update(fold, stateful=True)
    app.run(count=NODES + DEFAULT_PARTITION_COUNT)
    assert stopwatch is not None
    return stopwatch.rate(folded)


class _Stopwatch:
    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()

    def rate(self, records: int) -> Rate:
        return Rate(records / (time.perf_counter() - self._began), records / (time.process_time() - self._cpu_began))
