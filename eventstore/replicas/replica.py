"""A replica: it reads the log, folds the partitions of its role, and answers from the folded state.

Partitions have no owner. Any number of replicas fold the same records into the same states, and a process learns the
outcome of its command by folding up to it. One task folds and saves, so a save sees its partition at rest, and no
other task changes state between two awaits. State is read freely between awaits, and never changed from outside.

    reader -> mailbox (bounded) -> fold, in slices under 5 ms -> answers, waits, watches; a save every second

When `ready` returns, the long-lived state is in memory: a process calls gc.freeze() then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Any

from eventstore.avro.codec import encode
from eventstore.errors import LogUnavailable, TransientError
from eventstore.folding.decision_listener import DecisionSink
from eventstore.folding.fold import Decision, Fold, folds_by_version
from eventstore.folding.origin import ensure_origin, wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Batch, EventLog, Partition, Record
from eventstore.progress import Progress
from eventstore.replica_limits import LoopBudget, ReplicaLimits
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.lineage import lineage_of
from eventstore.replicas.log_follower import Backoff, check_same_log, follow
from eventstore.replicas.status import PartitionStatus
from eventstore.replicas.submission import submit
from eventstore.replicas.tracing import LogTracing
from eventstore.replicas.wait_lists import Answer, AnswerWaitList, FoldWaitList, Watch
from eventstore.state_store.saver import Saver, load_partition
from eventstore.state_store.store import StateStore
from schemas.events import Event, LogCreated

__all__ = ["Answer", "PartitionStatus", "Replica", "Watch"]

logger = logging.getLogger(__name__)

_LIMITS = ReplicaLimits()


class Replica(FoldedLog):
    """Folds the topics of its folds. Each fold version of a topic is a fold of its own.

    With `creates`, it creates a missing log; otherwise it waits until there is one. `sink` takes every decision, and
    the replica waits for it after each slice, before it saves. `folded_records` counts the records folded since the
    start; `append_ms` is the append time of the last one. Tasks that need a record to be folded wait in `fold_waits`.
    """

    def __init__(
        self,
        log: EventLog,
        folds: Sequence[Fold[Any]],
        *,
        store: StateStore,
        name: str,
        now_ms: Callable[[], int],
        rng: Random,
        creates: bool = True,
        limits: ReplicaLimits = _LIMITS,
        sink: DecisionSink | None = None,
        tracing: LogTracing | None = None,
    ) -> None:
        super().__init__(name, log.topics, log.partition_count)
        self.folded_records = 0
        self.append_ms = 0
        self.fold_waits = FoldWaitList()
        self._log = log
        self._store = store
        self._now_ms = now_ms
        self._rng = rng
        self._creates = creates
        self._limits = limits
        self._tracing = tracing
        self._versions = folds_by_version(folds)
        self._sink = sink
        self._undrained: FoldedPartition | None = None
        self._folded = {p: self._empty(p) for topic in self._versions for p in log.partitions(topic)}
        self._ends = dict.fromkeys(self._folded, 0)
        self._mailbox: asyncio.Queue[Batch] = asyncio.Queue(limits.mailbox_batches)
        self._ready = asyncio.Event()
        self._answers = AnswerWaitList()
        self._watches: list[Watch] = []
        self._saver = Saver(store, limits, now_s=0.0)

    # -- interface for callers

    async def ready(self) -> None:
        """Return when every record that was in the log at the start is folded."""
        await self._ready.wait()

    @property
    def log(self) -> EventLog:
        """The log that this replica reads."""
        return self._log

    @property
    def save_failures(self) -> int:
        """Number of failed saves since the start."""
        return self._saver.failures

    @property
    def saved_s(self) -> float:
        """Time at which all partitions were last saved without a failure, by the event loop's clock."""
        return self._saver.saved_s

    def dry_run(self, partition: Partition, event: Event) -> Decision:
        """The decision about this event if it were appended now. Appends and changes nothing."""
        return self.folded(partition).dry_run(event, self._now_ms())

    def watch(self, *topics: str) -> Watch:
        """A watch that reports which partitions of these topics were folded further. Close the watch when done."""
        watch = Watch(frozenset(topics), self._watches.remove)
        self._watches.append(watch)
        return watch

    async def wait_for_position(self, partition: Partition, position: int, *, timeout_s: float) -> None:
        """Return when everything below `position` is folded. Raises LogUnavailable at the time limit."""
        if self.folded(partition).position >= position:
            return

        def is_folded() -> bool:
            return self.folded(partition).position >= position

        if not await self.fold_waits.wait_for(is_folded, partition, timeout_s=timeout_s):
            raise LogUnavailable(f"position: {partition} was not folded up to {position} within {timeout_s:.3g} s")

    async def submit(self, partition: Partition, key: bytes, event: Event, *, timeout_s: float) -> Answer:
        """Append a command, fold up to it, and return its outcome.

        Raises AppendUnknown if the outcome is not known in time, AppendRefused and LogUnavailable if nothing was
        appended.
        """
        folded, answers, tracing = self.folded(partition), self._answers, self._tracing
        return await submit(self._log, folded, answers, key=key, event=event, timeout_s=timeout_s, tracing=tracing)

    async def append_event(self, partition: Partition, key: bytes, event: Event, *, timeout_s: float) -> None:
        """Append an internal event, without waiting for its outcome. Raises the same errors as `submit`."""
        traced = self._tracing.on_append(partition, event) if self._tracing is not None else None
        if traced is None:
            await self._log.append(partition, key, encode(event), timeout_s=timeout_s)
            return
        try:
            await self._log.append(partition, key, encode(event), timeout_s=timeout_s, headers=traced.headers)
        except BaseException as error:
            traced.finish(error)
            raise
        traced.finish(None)

    # -- the replica's own tasks

    async def run(self) -> None:
        """Fold for ever; outages are waited out. Raises LogMismatch or another FatalError."""
        await self._open()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                tasks.create_task(self._fold())
                tasks.create_task(self._check_log())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def save(self) -> None:
        """Save what is folded, after `run` has ended, so that a restart folds nothing again."""
        if self._ready.is_set():
            drained = [folded for folded in self._folded.values() if folded is not self._undrained]
            await self._saver.save_all(drained, asyncio.get_running_loop().time())

    async def _open(self) -> None:
        """Find or create the log, and load the saved state."""
        backoff = Backoff(self._rng)
        while True:
            try:
                origin = await self._find_origin()
                begins = {partition: await self._log.begin(partition) for partition in self._folded}
                await self._update_ends()
                break
            except TransientError as error:
                logger.warning("log not opened, retrying: %s", error)
                await backoff.wait()
        self.log_id, self.generation, self.lineage = origin.log_id, origin.generation, lineage_of(origin)
        stale = []
        for partition in self._folded:
            folded = await load_partition(self._empty(partition), self._store)
            if folded is None:
                stale.append(partition)
                folded = self._empty(partition)
            if partition.topic not in self.topics.deciding:  # a gap of expired records is no fault
                folded.position = max(folded.position, begins[partition])
            self._folded[partition] = folded
        now_s = asyncio.get_running_loop().time()
        self._saver = Saver(self._store, self._limits, now_s, stale)
        self._progress = Progress(self._all_positions(), self._ends, now_s)
        self._log_progress()

    async def _find_origin(self) -> LogCreated:
        if self._creates:
            return await ensure_origin(self._log, self.name, self._now_ms(), self._rng)
        return await wait_for_origin(self._log, (each for each in self._folded if each.topic in self.topics.deciding))

    async def _read(self) -> None:
        async def check() -> None:
            await check_same_log(self._log, self._folded.values())

        async with aclosing(follow(self._log, self._all_positions(), self._rng, check)) as batches:
            async for batch in batches:
                await self._mailbox.put(batch)

    async def _fold(self) -> None:
        """Fold batches as they arrive. Batches of several partitions that are ready share one budget, so their waiters
        wake up together.
        """
        clock = asyncio.get_running_loop().time
        budget = LoopBudget(self._limits, clock)
        while True:
            if self._mailbox.empty():
                batch = await self._next()
                budget.reset()
            else:
                batch = self._mailbox.get_nowait()
            if batch is not None:
                await self._fold_batch(self._folded[batch[0]], batch[1], budget)
            if clock() >= self._saver.next_s:
                await self._saver.save_all(self._folded.values(), clock(), budget.yield_if_spent)

    async def _next(self) -> Batch | None:
        """Wait for a batch; None when a save is due."""
        try:
            async with asyncio.timeout_at(self._saver.next_s):
                return await self._mailbox.get()
        except TimeoutError:
            return None

    async def _fold_batch(self, folded: FoldedPartition, records: Sequence[Record], budget: LoopBudget) -> None:
        start = 0
        while start < len(records):
            before, start = start, self._fold_slice(folded, records, start, budget)
            await self._drain(folded)
            self.folded_records += start - before
            self.append_ms = records[start - 1].timestamp_ms
            if self._tracing is not None and self._ready.is_set():
                self._tracing.on_fold(folded.partition, records[before:start])
            self.fold_waits.wake(folded.partition)
            for watch in self._watches:
                watch.notify(folded.partition)
            if not self._ready.is_set():
                self._progress.records += start - before
                self._log_progress()
            await self._saver.save_early(folded, not self._ready.is_set(), budget.yield_if_spent)
            await budget.yield_if_spent()

    async def _drain(self, folded: FoldedPartition) -> None:
        """Wait until the decisions about this partition are stored. Its state must not be saved before."""
        if self._sink is not None:
            self._undrained = folded
            await self._sink.drained()
            self._undrained = None

    def _fold_slice(self, folded: FoldedPartition, records: Sequence[Record], start: int, budget: LoopBudget) -> int:
        """Fold these records from `start` on, until the budget is spent; return where the next slice starts."""
        end = min(len(records), start + budget.records)
        while start < end:
            stop, entries = folded.fold_next(records, start, end)
            self._answers.resolve(folded.partition, entries)
            budget.records -= stop - start
            start = stop
            if budget.is_spent():
                break
        return start

    def _log_progress(self) -> None:
        """Log the progress of catching up, until it is done."""
        live = {partition: folded.position for partition, folded in self._folded.items() if not folded.halted}
        if self._progress.behind(live):
            self._progress.report(live, asyncio.get_running_loop().time())
            return
        self._ready.set()
        about = {"log": self.log_id, "partitions": len(live), "halted": len(self._folded) - len(live)}
        logger.info("replica caught up", extra=about)

    async def _check_log(self) -> None:
        """Query the ends of the log, for the lag, and check every minute that it is still the same log."""
        loop = asyncio.get_running_loop()
        recheck_at_s = loop.time() + self._limits.recheck_s
        while True:
            await asyncio.sleep(self._limits.ends_s)
            try:
                await self._update_ends()
                if loop.time() >= recheck_at_s:
                    await check_same_log(self._log, self._folded.values())
                    recheck_at_s = loop.time() + self._limits.recheck_s
            except LogUnavailable as error:
                logger.info("log health check failed, retrying: %s", error)

    async def _update_ends(self) -> None:
        asked_ms = self._now_ms()
        self._ends = {partition: await self._log.end(partition) for partition in self._folded}
        self.ends_seen_ms = asked_ms

    def _empty(self, partition: Partition) -> FoldedPartition:
        versions, is_deciding = self._versions[partition.topic], partition.topic in self.topics.deciding
        return FoldedPartition(partition, versions, self.log_id, self._sink, is_deciding=is_deciding)

    def _all_positions(self) -> dict[Partition, int]:
        return {partition: folded.position for partition, folded in self._folded.items()}
