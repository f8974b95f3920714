"""Folds a log again: for verification, for queries of the past, for measurements.

A replay folds each partition up to a cut, from its beginning or from a checkpoint. A position or a time gives the cut.
If a position does not name a partition, that partition is cut at the append time of the latest record before the
position, so the result is the plane at one point in time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import Any, NamedTuple

from eventstore.errors import PermanentError
from eventstore.folding.fold import Fold, folds_by_version
from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.origin import read_first, wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import EventLog, Partition, Record
from eventstore.progress import Progress, ReportProgress
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import DigestStore, StateReader, digest_bytes

_SLICE_S = 0.003

Observer = Callable[[FoldedPartition, Record, LedgerEntry | None], None]
"""Called after each record, with the partition after this record."""


class ReplayResult(NamedTuple):
    """The result of a replay. `digests` are by position: the requested positions and the last one."""

    partitions: dict[Partition, FoldedPartition]
    digests: dict[Partition, dict[int, str]]
    records: int
    bytes: int
    seconds: float


async def cut_at_time(log: EventLog, topics: Iterable[str], time_ms: int) -> dict[Partition, int]:
    """The position of every partition after the records appended up to this time."""
    partitions = [partition for topic in topics for partition in log.partitions(topic)]
    return {partition: await log.position_at(partition, time_ms + 1) for partition in partitions}


async def cut_at_position(
    log: EventLog, topics: Collection[str], offsets: Mapping[Partition, int]
) -> dict[Partition, int]:
    """These positions, completed for the partitions that they do not name: each of these is cut at the append time of
    the latest record before the given positions.

    Raises PermanentError for a position that is not in the log.
    """
    there = {partition for topic in topics for partition in log.partitions(topic)}
    for partition, offset in offsets.items():
        if partition not in there:
            raise PermanentError(f"position: {str(partition)!r} is not a partition of this log")
        end = await log.end(partition)
        if offset > end:
            raise PermanentError(f"position: {partition} ends at {end}, before {offset}")
    return {**await cut_at_time(log, topics, await time_before(log, offsets)), **offsets}


async def time_before(log: EventLog, offsets: Mapping[Partition, int]) -> int:
    """The append time of the latest record before these positions; 0 if there is none.

    Positions whose preceding record has expired do not count. Raises PermanentError if no other position is left.
    """
    befores = {partition: offset - 1 for partition, offset in offsets.items() if offset > 0}
    there = {partition: offset for partition, offset in befores.items() if offset >= await log.begin(partition)}
    if befores and not there:
        raise PermanentError(f"position: the record before it in {min(befores)} has expired")
    lasts = await read_first(log, there)
    return max((record.timestamp_ms for record in lasts.values()), default=0)


async def replay(
    log: EventLog,
    folds: Sequence[Fold[Any]],
    *,
    until: Mapping[Partition, int] | None = None,
    digests_at: Mapping[Partition, Iterable[int]] | None = None,
    start: StateReader | None = None,
    observer: Observer | None = None,
    report: ReportProgress | None = None,
) -> ReplayResult:
    """Fold the topics of these folds up to `until` (by default the ends they have now).

    A partition starts from the checkpoint `start` if that lies before the cut and before every position in
    `digests_at`. Raises LogUnavailable and LogMismatch.
    """
    origin = await wait_for_origin(log)
    versions = folds_by_version(folds)
    partitions = [partition for topic in versions for partition in log.partitions(topic)]
    ends = {p: await log.end(p) if until is None else until[p] for p in partitions}
    run = _Run(log, ends, digests_at or {}, observer, report)
    for partition in partitions:
        first = min((ends[partition], *run.wanted(partition)))
        is_deciding = partition.topic in log.topics.deciding
        empty = FoldedPartition(partition, versions[partition.topic], origin.log_id, is_deciding=is_deciding)
        folded = await started(empty, start, first)
        folded.position = max(folded.position, await log.begin(partition))
        run.partitions[partition] = folded
    return await run.fold()


async def started(empty: FoldedPartition, start: StateReader | None, latest: int) -> FoldedPartition:
    """Load the partition from its saved state, if the position of that state is at or before `latest`. Otherwise return
    an empty partition."""
    head = start.head(empty.partition) if start else None
    if start is None or head is None or head.position > latest:
        return empty
    folded = await load_partition(empty, start)
    if folded is None:
        return FoldedPartition(empty.partition, empty.versions, empty.log_id, is_deciding=empty.is_deciding)
    for table in folded.tables:  # so that the first digest counts all rows
        table.touch([*table.rows])
    folded.digest = 0
    return folded


class _Run:
    """One replay under way."""

    def __init__(
        self,
        log: EventLog,
        ends: Mapping[Partition, int],
        digests_at: Mapping[Partition, Iterable[int]],
        observer: Observer | None,
        report: ReportProgress | None,
    ) -> None:
        self.partitions: dict[Partition, FoldedPartition] = {}
        self._log = log
        self._ends = ends
        self._digests_at = digests_at
        self._observer = observer
        self._report = report
        self._store = DigestStore()
        self._digests: dict[Partition, dict[int, str]] = {}
        self._loop = asyncio.get_running_loop()

    def wanted(self, partition: Partition) -> list[int]:
        """The positions before the end at which a digest is requested."""
        return sorted(at for at in self._digests_at.get(partition, ()) if at < self._ends[partition])

    async def fold(self) -> ReplayResult:
        self._progress = Progress(self._positions(), self._ends, self._loop.time(), self._report)
        for partition, folded in self.partitions.items():
            self._digests[partition] = {}
            for stop in (*self.wanted(partition), self._ends[partition]):
                if folded.position < stop:
                    await self._fold_to(folded, stop)
                if folded.halted:
                    break
                await save(folded, self._store)
                self._digests[partition][stop] = digest_bytes(folded.digest).hex()
        progress = self._progress
        return ReplayResult(
            self.partitions, self._digests, progress.records, progress.bytes, progress.seconds(self._loop.time())
        )

    async def _fold_to(self, folded: FoldedPartition, stop: int) -> None:
        """Fold the records below `stop`."""
        async with aclosing(self._log.read({folded.partition: folded.position})) as batches:
            async for _, records in batches:
                until_s = self._loop.time() + _SLICE_S
                start, end = 0, bisect_left(records, stop, key=attrgetter("offset"))
                while start < end and not folded.halted:
                    start = self._fold_some(folded, records, start, end)
                    if self._loop.time() >= until_s:
                        self._progress.report(self._positions(), self._loop.time())
                        await asyncio.sleep(0)
                        until_s = self._loop.time() + _SLICE_S
                if folded.position >= stop or end < len(records) or folded.halted:
                    return

    def _fold_some(self, folded: FoldedPartition, records: Sequence[Record], start: int, end: int) -> int:
        """Fold some of these records (one, with an observer); return the index of the next record."""
        if self._observer is None:
            after, _ = folded.fold_next(records, start, end)
        else:
            after = start + 1
            self._observer(folded, records[start], folded.fold(records[start]))
        self._progress.records += after - start
        self._progress.bytes += sum(len(record.key) + len(record.value) for record in records[start:after])
        return after

    def _positions(self) -> dict[Partition, int]:
        return {partition: folded.position for partition, folded in self.partitions.items()}
