"""The records about a staged change that its driver appends: the DPUs of the next stage, and how far all DPUs are.

The fold decides by its own rules and time. So records of several replicas, copies, and records of a replica that lags
behind do no harm (projections/staging/decide.py). Nothing is appended that the fold would not act on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from drivers.internal_events import InternalEvents
from eventstore.folding.fold import Decision, RecordMetadata
from eventstore.log import INSTALLS, ZONES, Partition
from eventstore.replicas.catch_up import CatchUp
from eventstore.replicas.replica import Replica
from projections.views.stage_progress import StageProgress
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved

LANDING_S = 2.0
"""Longest wait for the fold to show an append."""

StageRecord: TypeAlias = StageDpusNamed | StageObserved


class StageRecords:
    """Appends to a partition what follows from progress. `decide` is the decision of the partition's fold."""

    def __init__(
        self,
        replica: Replica,
        events: InternalEvents,
        partition: Partition,
        decide: Callable[[StageRecord, RecordMetadata], Decision],
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._events = events
        self._partition = partition
        self._decide = decide
        self._now_ms = now_ms
        partitions = (partition, *replica.partitions(ZONES), *replica.partitions(INSTALLS))
        self._catch_ups = [CatchUp(replica, each) for each in partitions]

    async def advance(self, count: Callable[[], Awaitable[StageProgress | None]], actor: str) -> None:
        """Name what the next stage lacks; if it lacks nothing, state how far the DPUs are.

        The DPUs are counted again once everything is folded that the log has now: a replica may lag that still sees
        what DPUs had before an undo.
        """
        progress = await count()
        if progress is None or not any(map(self._is_needed, _records(progress, actor))):
            return
        for catch_up in self._catch_ups:
            if not await catch_up():
                return
        progress = await count()
        for event in _records(progress, actor) if progress is not None else ():
            await self._append(event)

    async def _append(self, event: StageRecord) -> None:
        """Append an event that the fold would act on now, in our turn, and wait until it is folded."""
        partition, subject = self._partition, event.envelope.subject
        if not self._is_needed(event):
            return
        if await self._events.wait_for_turn(subject, partition, lambda: not self._is_needed(event)):
            return
        before = self._replica.position(partition)
        if await self._events.append(partition, subject, event):
            await self._replica.fold_waits.wait_for(
                lambda: self._replica.position(partition) > before and not self._is_needed(event),
                partition,
                timeout_s=LANDING_S,
            )

    def _is_needed(self, event: StageRecord) -> bool:
        """Whether the fold would change something if this event were its next record."""
        now_ms = self._now_ms()
        at = RecordMetadata(self._partition, self._replica.position(self._partition), now_ms, now_ms)
        return self._decide(event, at).change is not None


def _records(progress: StageProgress, actor: str) -> list[StageRecord]:
    names = progress.names()
    found: list[StageRecord] = [
        progress.naming(names[start : start + MAX_ITEMS], actor) for start in range(0, len(names), MAX_ITEMS)
    ]
    return found or [progress.observation(actor)]
