"""Three real brokers for a bench, with the recommended settings, and a log of its own on them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.composition.topics import TOPICS
from deploy.kafka.brokers import Brokers
from deploy.kafka.jars import cache_folder
from eventstore.avro.codec import encode
from eventstore.folding.origin import ensure_origin
from eventstore.kafka.log import KafkaLog
from eventstore.log import ZONES, Partition, partition_of
from schemas.events import NodesJoined
from tests.bench.workload import in_batches, now_ms

EXTERNAL = "KAFKA_BOOTSTRAP_SERVERS"
APPEND_S = 30.0


def new_prefix() -> str:
    """A prefix for the topics of a bench."""
    return f"bench-{random.SystemRandom().getrandbits(32):08x}"


@contextmanager
def cluster(data: Path) -> Iterator[str]:
    """The addresses of three local brokers, or of those that the environment names."""
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


async def append_joins(bootstrap: str, prefix: str, events: Iterable[NodesJoined], at_once: int) -> None:
    """Create the log, and append these events to the partitions of their zones, in order."""
    rng = random.Random(1)
    async with KafkaLog.open(TOPICS, bootstrap, topic_prefix=prefix, rng=rng) as log:
        await ensure_origin(log, "bench", now_ms(), rng)

        async def append(event: NodesJoined) -> None:
            key = event.zone.encode()
            partition = Partition(ZONES, partition_of(key, log.partition_count))
            await log.append(partition, key, encode(event), timeout_s=APPEND_S)

        for batch in in_batches(events, at_once):
            await asyncio.gather(*map(append, batch))
