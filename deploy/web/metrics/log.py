"""Metrics of the log and of a replica's progress in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client.core import Metric

from deploy.web.metrics import catalog
from drivers.stall_detector import StallDetector
from eventstore.embedded.log import EmbeddedLog
from eventstore.kafka.appender import KafkaAppender
from eventstore.kafka.log import KafkaLog
from eventstore.log import EventLog
from eventstore.replicas.clock_skew import LOG, ClockSkew
from eventstore.replicas.replica import Replica
from eventstore.replicas.status import PartitionStatus


def collect(replica: Replica, stall_detector: StallDetector | None, now_ms: int) -> Iterator[Metric]:
    """All metrics of the log."""
    partitions = replica.partitions_status()
    yield from _partitions(partitions)
    yield from _versions(replica, partitions)
    yield catalog.FOLDED.family(replica.folded_records)
    yield catalog.LOG_SEEN.family(replica.ends_seen_ms / 1_000)
    yield catalog.UNSAVED.family(sum(status.position - status.saved_position for status in partitions))
    yield catalog.SAVED.family(now_ms / 1_000 - (asyncio.get_running_loop().time() - replica.saved_s))
    yield catalog.SAVE_FAILURES.family(replica.save_failures)
    made = catalog.BATCHES.family()
    if (counted := _appending(replica.log)) is not None:
        made.add_metric(["written"], counted.batches)
        made.add_metric(["failed"], counted.failed_batches)
    yield made
    if stall_detector is not None:
        yield catalog.STALLED.family(len(stall_detector.reasons))


def collect_clocks(clocks: ClockSkew) -> Iterator[Metric]:
    """Offsets of this host's clock from the clocks of the log and of other replicas, and its largest recent step."""
    offsets_ms = clocks.offsets_ms()
    made = catalog.CLOCK_OFFSET.family()
    if LOG in offsets_ms:
        made.add_metric(["log"], offsets_ms.pop(LOG) / 1_000)
    if offsets_ms:
        made.add_metric(["replica"], max(offsets_ms.values(), key=abs) / 1_000)
    yield made
    yield catalog.CLOCK_STEP.family(max((step.ms for step in clocks.steps()), key=abs, default=0) / 1_000)
    yield catalog.LOG_AHEAD.family(clocks.log_ahead_ms() / 1_000)


def _appending(log: EventLog) -> EmbeddedLog | KafkaAppender | None:
    """The part of a log that counts its batches."""
    match log:
        case EmbeddedLog():
            return log
        case KafkaLog():
            return log.appender
        case _:
            return None


def _partitions(partitions: list[PartitionStatus]) -> Iterator[Metric]:
    position, lag, folded = catalog.POSITION.family(), catalog.LAG_RECORDS.family(), catalog.FOLDED_TIME.family()
    halted, quarantined = catalog.HALTED.family(), catalog.QUARANTINED.family()
    for status in partitions:
        labels = [str(status.partition)]
        position.add_metric(labels, status.position)
        lag.add_metric(labels, status.lag)
        folded.add_metric(labels, status.time_ms / 1_000)
        halted.add_metric(labels, 1 if status.halted else 0)
        quarantined.add_metric(labels, status.quarantined)
    yield from (position, lag, folded, halted, quarantined)


def _versions(replica: Replica, partitions: list[PartitionStatus]) -> Iterator[Metric]:
    """Per topic: the fold version in force, and the newest one that this replica supports."""
    in_force, supported = catalog.FOLD_VERSION.family(), catalog.FOLD_VERSION_SUPPORTED.family()
    for topic, versions in sorted(replica.supports().items()):
        in_force.add_metric([topic], min(s.fold_version for s in partitions if s.partition.topic == topic))
        supported.add_metric([topic], max(versions))
    yield from (in_force, supported)
