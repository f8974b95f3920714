"""The decisions of a log, made by folding it from the beginning: for planes without a decisions topic, and for history.

Partitions are folded one after the other, so that only one state is in memory. If new records are followed, all
partitions are folded at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from deploy.operations.export.events import EventFilter, admitted_lines, range_of, silent
from drivers.decisions.writer import value_of
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun, decided_records_of
from eventstore.folding.fold import Fold, folds_by_version
from eventstore.folding.origin import wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import DECISIONS, Batch, EventLog, Partition, Record
from eventstore.progress import ReportProgress
from projections.decisions.decided import key_of

Decided = DecidedRecord | DecidedRun


class _Collected:
    """A DecisionListener that collects the decisions."""

    def __init__(self) -> None:
        self._decisions: list[Decided] = []

    def on_decision(self, decided: Decided) -> None:
        self._decisions.append(decided)

    def take(self) -> list[Decided]:
        taken, self._decisions = self._decisions, []
        return taken


async def fold_decisions(
    log: EventLog, folds: Sequence[Fold[Any]], ends: Mapping[Partition, int], *, follow: bool = False
) -> AsyncGenerator[tuple[FoldedPartition, list[Decided]], None]:
    """Fold these partitions up to their ends, and yield the decisions about each batch of records. With `follow`, fold
    all partitions at once, and continue with new records for ever. Raises the errors of EventLog."""
    origin = await wait_for_origin(log)
    versions = folds_by_version(folds)
    groups = [[*ends]] if follow else [[partition] for partition, end in ends.items() if end]
    for group in groups:
        listener = _Collected()
        folded = {p: FoldedPartition(p, versions[p.topic], origin.log_id, listener) for p in group}
        async with aclosing(log.read(dict.fromkeys(group, 0))) as batches:
            async for partition, records in batches:
                within = records if follow else [record for record in records if record.offset < ends[partition]]
                _fold(folded[partition], within)
                yield folded[partition], listener.take()
                await asyncio.sleep(0)
                if not follow and (records[-1].offset + 1 >= ends[partition] or folded[partition].halted):
                    break


def _fold(folded: FoldedPartition, records: Sequence[Record]) -> None:
    start = 0
    while start < len(records) and not folded.halted:
        start, _ = folded.fold_next(records, start, len(records))


async def decision_lines(
    log: EventLog, folds: Sequence[Fold[Any]], event_filter: EventFilter, *, follow: bool, from_end: bool
) -> AsyncGenerator[dict[str, object], None]:
    """The decisions as lines of JSON. With `from_end`, only those about records that are appended from now on."""
    found = decision_batches(log, folds, event_filter, follow=follow, from_end=from_end)
    async with aclosing(found):
        async for partition, records in found:
            for line in admitted_lines(event_filter, partition, records):
                yield line


async def decision_batches(
    log: EventLog,
    folds: Sequence[Fold[Any]],
    event_filter: EventFilter,
    *,
    follow: bool,
    from_end: bool = False,
    report: ReportProgress = silent,
) -> AsyncGenerator[Batch, None]:
    """The decisions about the records in the range of the filter, in the form of records of the decisions topic. Each
    decision has the offset and append time of the record that it is about. Decisions are in the order of these records
    per partition."""
    follow = follow and event_filter.until is None
    begins, ends = await range_of(log, event_filter._replace(topics=log.topics.deciding))
    begins = ends if from_end else begins
    done, total = dict.fromkeys(ends, 0), max(1, sum(ends.values()))
    async with aclosing(fold_decisions(log, folds, ends, follow=follow)) as found:
        async for folded, decisions in found:
            partition = folded.partition
            if records := [*_records(decisions, begins[partition])]:
                yield Partition(DECISIONS, partition.number), records
            done[partition] = folded.position
            report(str(partition), min(sum(done.values()) / total, 1.0))


def _records(decisions: Iterable[Decided], begin: int) -> Iterable[Record]:
    for decided in decisions:
        if isinstance(decided, DecidedRecord):
            singles: Iterable[DecidedRecord] = (decided,)
        else:
            singles = decided_records_of(decided) if decided.records[-1].offset >= begin else ()
        for single in singles:
            if single.at.offset >= begin:
                yield Record(single.at.offset, single.at.append_ms, key_of(single.at).encode(), value_of(single))
