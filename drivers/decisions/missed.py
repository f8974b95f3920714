"""Decisions that were missed are made again: a partition is folded on the side, and what its fold decides is owed anew.

From the beginning of the log, or from a state that was saved before what is missing; half of the time at most, and one
partition at a time, since each is a second state in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from random import Random

from drivers.decisions.kept import Kept, kept, kept_of
from drivers.decisions.owed import Owed
from drivers.fold_watcher import FoldWatcher
from eventstore.errors import LogUnavailable
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition
from eventstore.recovery.replay import started
from eventstore.replicas.log_follower import Backoff
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import StateReader

logger = logging.getLogger(__name__)

SLICE_S = 0.003
STEP_RECORDS = 64
"""Records between looks at the clock."""

Earlier = Callable[[Partition, int], Awaitable[StateReader | None]]
"""A state of a partition that was saved at or before a position, if there is one; whoever asked closes it."""


async def nothing_earlier(partition: Partition, position: int) -> StateReader | None:
    return None


class Missed:
    """Serves until `run` is cancelled."""

    def __init__(
        self,
        replica: Replica,
        owed: Mapping[Partition, Owed],
        fold_watcher: FoldWatcher,
        *,
        rng: Random,
        earlier: Earlier,
    ) -> None:
        self._replica = replica
        self._owed = owed
        self._fold_watcher = fold_watcher
        self._rng = rng
        self._earlier = earlier
        self._room = asyncio.Event()

    def make_room(self) -> None:
        """Some of what was kept may be gone."""
        self._room.set()

    async def run(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            await self._fold_watcher.wait_for(self._is_any_missing, *self._owed)
            for partition in [partition for partition, owed in self._owed.items() if owed.gap is not None]:
                try:
                    await self._make_again(partition)
                    backoff.reset()
                except LogUnavailable as error:
                    logger.warning(
                        "backfill of decisions failed, retrying", extra={"partition": partition, "reason": str(error)}
                    )
                    await backoff.wait()

    def _is_any_missing(self) -> bool:
        return any(owed.gap is not None for owed in self._owed.values())

    async def _make_again(self, partition: Partition) -> None:
        owed = self._owed[partition]
        if owed.gap is None:
            return
        start, end = owed.gap
        logger.info("backfill of decisions started", extra={"partition": partition, "from": start, "to": end})
        live, heard = self._replica.folded(partition), _Heard(owed.gap.start)
        folded = FoldedPartition(partition, live.rules, live.log_id, heard)
        saved = await self._earlier(partition, owed.gap.start)
        if saved is not None:
            try:
                folded = await started(folded, saved, owed.gap.start)
            finally:
                saved.close()
        async with aclosing(self._replica.log.read({partition: folded.position})) as batches:
            async for _, records in batches:
                start = 0
                while start < len(records) and owed.gap is not None and not folded.halted:
                    stop = min(start + STEP_RECORDS, len(records))
                    began_s = asyncio.get_running_loop().time()
                    while start < stop and asyncio.get_running_loop().time() < began_s + SLICE_S:
                        start, _ = folded.fold_next(records, start, stop)
                    owed.made_again(heard.take(), folded.position)
                    self._fold_watcher.wake(partition)
                    await self._pause(owed, asyncio.get_running_loop().time() - began_s)
                if owed.gap is None or folded.halted:
                    break
        if folded.halted:
            owed.gap = None

    async def _pause(self, owed: Owed, worked_s: float) -> None:
        """As long as was worked; and until there is room for more."""
        await asyncio.sleep(worked_s)
        while not owed.has_room:
            self._room.clear()
            await self._room.wait()


class _Heard:
    """Hears a fold that is made again, from an offset on."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._decisions: list[Kept] = []

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        if isinstance(decided_record, DecidedRecord):
            if decided_record.at.offset >= self._start:
                self._decisions.append(kept(decided_record))
        elif decided_record.records[-1].offset >= self._start:
            self._decisions += kept_of(decided_record)

    def owes_from(self, position: int) -> int:
        return position

    def restored(self, owed_from: int, position: int) -> None:
        """What was owed at that position is not asked for here."""

    def take(self) -> list[Kept]:
        taken, self._decisions = self._decisions, []
        return taken
