"""Folds the log as of a point in the past: from the nearest saved state before it, then record by record up to the cut.

Each partition starts from the latest saved state at or before its cut. These states may come from different saves,
because a fold reads one partition only. If a state cannot be read or does not match its digest, an older one is used,
and finally the beginning of the log.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, closing
from operator import attrgetter
from typing import Any

from eventstore.errors import FatalError, LogMismatch
from eventstore.folding.fold import Fold, folds_by_version
from eventstore.folding.origin import wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, EventLog, Partition, Record
from eventstore.recovery.cuts import Cut
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.lineage import lineage_of
from eventstore.state_store.checkpoints import StateCheckpoint
from eventstore.state_store.rocks_store import open_checkpoint
from eventstore.state_store.saver import load_partition
from eventstore.state_store.store import StateReader
from schemas.events import LogCreated

_SLICE_RECORDS = 2_000

ReportRecords = Callable[[int, int], None]
"""Callback with the number of folded records and their total."""

logger = logging.getLogger(__name__)


class FoldedLogAsOf(FoldedLog):
    """The folded state of all partitions as of one point in the past. Unlike a replica, it does not advance."""

    def __init__(
        self, log: EventLog, log_id: str, generation: int, cut: Cut, folded: Mapping[Partition, FoldedPartition]
    ) -> None:
        super().__init__("the past", log.topics, log.partition_count)
        self.log_id = log_id
        self.generation = generation
        self.ends_seen_ms = cut.time_ms
        self._folded = dict(folded)
        self._ends = dict(cut.offsets)


async def fold_as_of(
    log: EventLog, folds: Sequence[Fold[Any]], cut: Cut, checkpoints: Sequence[StateCheckpoint], report: ReportRecords
) -> FoldedLogAsOf:
    """Fold the topics of these folds up to a cut. Raises LogUnavailable and LogMismatch."""
    origin = await wait_for_origin(log)
    versions = folds_by_version(folds)
    partitions = [partition for topic in versions for partition in log.partitions(topic)]

    def empty(partition: Partition) -> FoldedPartition:
        is_deciding = partition.topic in log.topics.deciding
        return FoldedPartition(partition, versions[partition.topic], origin.log_id, is_deciding=is_deciding)

    folded = await _nearest(cut, checkpoints, partitions, empty)
    for partition in partitions:
        found = folded.setdefault(partition, empty(partition))
        # A start after expired records is no fault, but no partition may start after its cut.
        found.position = max(found.position, min(await log.begin(partition), cut.offsets[partition]))
    await _fold_on(log, folded, cut.offsets, report)
    return FoldedLogAsOf(log, origin.log_id, _generation_at(cut, origin), cut, folded)


def _generation_at(cut: Cut, origin: LogCreated) -> int:
    """The generation of the log at the cut. The time of the cut is compared first: if a restore appended nothing to
    fleet, the position in fleet is the same before and after the restore."""
    lineage = lineage_of(origin)
    if cut.time_ms >= origin.envelope.issued_at_ms:
        return lineage.generation
    return lineage.generation_at(cut.offsets.get(FLEET_0, 0))


async def _nearest(
    cut: Cut,
    checkpoints: Sequence[StateCheckpoint],
    partitions: Sequence[Partition],
    empty: Callable[[Partition], FoldedPartition],
) -> dict[Partition, FoldedPartition]:
    """The latest usable saved state of each partition that has one."""
    found: dict[Partition, FoldedPartition] = {}
    missing = [partition for partition in partitions if cut.offsets[partition]]
    for state in reversed(checkpoints):
        if state.time_ms > cut.time_ms:
            continue
        if not missing:
            break
        try:
            with closing(open_checkpoint(state.path)) as saved:
                missing = await _restore(saved, cut, missing, empty, found)
        except LogMismatch:
            raise
        except FatalError as error:  # the checkpoint may have been pruned just now
            logger.warning("saved state skipped: %s", error)
    return found


async def _restore(
    saved: StateReader,
    cut: Cut,
    missing: Sequence[Partition],
    empty: Callable[[Partition], FoldedPartition],
    found: dict[Partition, FoldedPartition],
) -> list[Partition]:
    """Load each partition's saved state if it is usable; return the partitions that need an older one."""
    still = []
    for partition in missing:
        head = saved.head(partition)
        if head is None:  # older states do not have the partition either
            continue
        folded = await load_partition(empty(partition), saved) if head.position <= cut.offsets[partition] else None
        if folded is None:
            still.append(partition)
        else:
            found[partition] = folded
    return still


async def _fold_on(
    log: EventLog, folded: Mapping[Partition, FoldedPartition], ends: Mapping[Partition, int], report: ReportRecords
) -> None:
    """Fold every partition up to its end.

    A read continues beyond the ends of partitions, so a new read starts whenever half of the partitions are done.
    """
    pending = {p: each for p, each in folded.items() if each.position < ends[p]}
    total = sum(ends[partition] - each.position for partition, each in pending.items())
    done = 0
    while pending:
        enough = len(pending) // 2
        async with aclosing(log.read({p: each.position for p, each in pending.items()})) as batches:
            async for partition, records in batches:
                if partition not in pending:
                    continue
                end = ends[partition]
                before = bisect_left(records, end, key=attrgetter("offset"))
                await _fold_batch(pending[partition], records, before)
                done += before
                report(done, total)
                if before < len(records) or records[-1].offset + 1 >= end or pending[partition].halted:
                    del pending[partition]
                    if len(pending) <= enough:
                        break


async def _fold_batch(folded: FoldedPartition, records: Sequence[Record], end: int) -> None:
    start = 0
    while start < end and not folded.halted:
        stop = min(end, start + _SLICE_RECORDS)
        while start < stop and not folded.halted:
            start, _ = folded.fold_next(records, start, stop)
        await asyncio.sleep(0)
