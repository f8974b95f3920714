"""Single joins, one to a record, folded out of a real Kafka by one process that saves its state in RocksDB.

Peers read the same records from the same brokers and keep the newest record of each node and how many nodes each zone
has: quix-streams with our decoder in its own RocksDB (no changelog, which only slows it); Kafka Streams on one thread
in RocksDB with a changelog, in a JVM that has run all of it before; and, as the floor of what Python can do,
confluent-kafka with our decoder and a plain dict that is not saved, with the garbage collector off. State is saved once
a second. Ours and quix-streams take turns, and the best run of each counts. Each run is a fresh process, measured
from the first record until all state is saved. Records per second of CPU time are given too, as the brokers run on the
same machine. All final states are compared field by field (for quix-streams, only the number of nodes).
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode
from eventstore.kafka.log import KafkaLog
from eventstore.log import DEFAULT_PARTITION_COUNT, ZONES
from eventstore.replicas.replica import Replica
from eventstore.state_store.rocks_store import RocksStore
from projections.zones.fold import ZonesFold
from schemas.events import NodesJoined
from tests.bench.apart import apart
from tests.bench.brokers import append_joins, cluster, new_prefix
from tests.bench.figures import Figure
from tests.bench.folds_compared import Rate, Row, Stopwatch, rows_of
from tests.bench.kafka_streams import fold_by_streams
from tests.bench.workload import joins, now_ms

NODES = 200_000
ZONES_COUNT = 200
APPENDS_AT_ONCE = 10_000
FOLD_S = 120.0
TURNS = 2
ROUNDS = 4
POLLED_AT_ONCE = 10_000


def figures() -> list[Figure]:
    prefix = new_prefix()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "kafka") as bootstrap:
        apart(_append_all, bootstrap, prefix)
        turns = [
            (
                apart(_fold, bootstrap, prefix, Path(folder) / f"state-{turn}"),
                apart(_fold_by_quix, bootstrap, f"{prefix}.{ZONES}", f"{prefix}-{turn}", Path(folder) / f"quix-{turn}"),
            )
            for turn in range(TURNS)
        ]
        ours, quix = (max(rates, key=lambda rate: rate.per_s) for rates in zip(*turns, strict=True))
        floor = apart(_fold_into_dict, bootstrap, prefix)
        streams = fold_by_streams(bootstrap, f"{prefix}.{ZONES}", "saved", NODES, ROUNDS)
    for peer in (floor, streams.cold, streams.warm):
        peer.check(ours)
    assert ours.nodes == NODES
    name = "single joins folded out of Kafka, saved"
    return [
        Figure(name, ours.per_s, "joins/s", quix.per_s, "quix-streams", 80e3),
        Figure(f"{name}, per second of CPU", ours.per_cpu_s, "joins/s", quix.per_cpu_s, "quix-streams"),
        Figure(f"{name}, as times the peer's rate", ours.per_s / quix.per_s, "times", aim=2.0),
        Figure(name, ours.per_s, "joins/s", streams.warm.per_s, "Kafka Streams, warm"),
        Figure(name, ours.per_s, "joins/s", streams.cold.per_s, "Kafka Streams, fresh"),
        Figure(f"{name}, per second of CPU", ours.per_cpu_s, "joins/s", streams.warm.per_cpu_s, "Kafka Streams, warm"),
        Figure(name, ours.per_s, "joins/s", floor.per_s, "a dict, unsaved"),
    ]


def _append_all(bootstrap: str, prefix: str) -> None:
    uvloop.run(append_joins(bootstrap, prefix, joins(NODES, ZONES_COUNT, per_record=1), APPENDS_AT_ONCE))


def _fold(bootstrap: str, prefix: str, state: Path) -> Rate:
    return uvloop.run(_fold_by_replica(bootstrap, prefix, state))


async def _fold_by_replica(bootstrap: str, prefix: str, state: Path) -> Rate:
    rng = random.Random(2)
    store = RocksStore(state)
    async with KafkaLog.open(TOPICS, bootstrap, topic_prefix=prefix, rng=rng, create=False) as log:
        replica = Replica(log, [ZonesFold()], store=store, name="bench", now_ms=now_ms, rng=rng, creates=False)
        with replica.watch(ZONES) as watch:
            running = asyncio.create_task(replica.run())
            await watch.changed()
            stopwatch = Stopwatch()
            before = sum(map(replica.position, replica.partitions(ZONES)))
            async with asyncio.timeout(FOLD_S):
                await replica.ready()
        running.cancel()
        await asyncio.wait({running})
        await replica.save()
        stopwatch.stop()
        folded = sum(map(replica.position, replica.partitions(ZONES))) - before
        rate = stopwatch.rate(folded, rows_of(replica))
    store.close()
    return rate


def _fold_by_quix(bootstrap: str, topic_name: str, group: str, state: Path) -> Rate:
    from quixstreams import Application  # importing it takes a second, and only this function uses it

    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=state,
        use_changelog_topics=False,
        commit_interval=1.0,
        loglevel="ERROR",
    )
    stopwatch, folded, nodes = None, 0, 0

    def fold(value: bytes, latest: Any) -> None:
        nonlocal stopwatch, folded, nodes
        stopwatch = stopwatch or Stopwatch()
        folded += 1
        event = decode(value)
        if isinstance(event, NodesJoined):
            node = event.names[0]
            if latest.get(node) is None:
                nodes += 1
                latest.set("count", latest.get("count", 0) + 1)
            row = (event.envelope.issued_at_ms, event.envelope.command_id, event.addresses4.hex(), event.label_sets[0])
            latest.set(node, row)

    topic = app.topic(topic_name, key_deserializer="str", value_deserializer="bytes")
    app.dataframe(topic).update(fold, stateful=True)
    app.run(count=NODES + DEFAULT_PARTITION_COUNT)
    assert stopwatch is not None
    stopwatch.stop()
    assert nodes == NODES
    return stopwatch.rate(folded, ())


def _fold_into_dict(bootstrap: str, prefix: str) -> Rate:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": prefix, "enable.auto.commit": False})
    topic = f"{prefix}.{ZONES}"
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(DEFAULT_PARTITION_COUNT)])
    nodes: dict[str, Row] = {}
    counts: dict[str, int] = {}
    folded, stopwatch = 0, None
    gc.disable()
    while folded < NODES + DEFAULT_PARTITION_COUNT:
        messages = consumer.consume(POLLED_AT_ONCE, 0.1)
        stopwatch = stopwatch or (Stopwatch() if messages else None)
        folded += len(messages)
        for message in messages:
            event = decode(message.value())
            if isinstance(event, NodesJoined):
                node = event.names[0]
                if node not in nodes:
                    counts[event.zone] = counts.get(event.zone, 0) + 1
                nodes[node] = (node, event.zone, int.from_bytes(event.addresses4, "big"), event.label_sets[0])
    assert stopwatch is not None
    stopwatch.stop()
    consumer.close()
    assert sum(counts.values()) == NODES
    return stopwatch.rate(folded, nodes.values())
