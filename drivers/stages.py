"""Stages of changes of policies: names the DPUs of the next stage, and tells the fold how far the DPUs are.

The fold decides by its own rules and time. So records of several replicas, copies, and records of a replica that lags
behind do no harm (projections/fleet/staging/decide.py). A pass appends nothing that the fold would not act on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from drivers.internal_events import InternalEvents
from eventstore.folding.fold import RecordMetadata
from eventstore.log import FLEET_0
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.fleet.staging.decide import decide_naming
from projections.fleet.staging.release import decide_release
from projections.fold_states import FoldStates
from projections.views.staging import StageProgress
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved

PASS_S = 1.0
"""Interval between two looks at the DPUs, with jitter."""
LANDING_S = 2.0
"""Longest wait for the fold to show an append."""
ZONES_AT_ONCE = 16
"""Zones that are counted before the loop yields."""

logger = logging.getLogger(__name__)


class Stages:
    """Advances the present staged change until `run` is cancelled."""

    def __init__(self, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"stages/{replica.name}"
        self.internal_events = InternalEvents(replica, ranks, API)

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            if not self._is_under_way():
                await self._replica.fold_waits.changed(FLEET_0)
                continue
            await self._advance()
            await asyncio.sleep(PASS_S * self._rng.uniform(0.5, 1.5))

    def _is_under_way(self) -> bool:
        staged = self._states.fleet.staged
        return staged is not None and not staged.result and not self._replica.folded(FLEET_0).halted

    async def _advance(self) -> None:
        """Name what the next stage lacks, then state how far the DPUs are."""
        progress = await self._progress()
        if progress is None:
            return
        names = progress.names()
        for start in range(0, len(names), MAX_ITEMS):
            await self._append(progress.naming(names[start : start + MAX_ITEMS], self._actor))
        if not names:
            await self._append(progress.observation(self._actor))

    async def _progress(self) -> StageProgress | None:
        """The progress of the present change; None if it has changed meanwhile."""
        staged, fleet = self._states.fleet.staged, self._states.fleet
        if staged is None:
            return None
        progress = StageProgress(fleet, staged, epoch=self._replica.generation, now_ms=self._now_ms())
        count = 0
        for state in self._states.all_zones():
            for zone in sorted(state.dpu_index.zones):
                progress.add_zone(zone, state, self._states.installs(zone))
                count += 1
                if count % ZONES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return progress if self._states.fleet.staged is staged else None

    async def _append(self, event: StageDpusNamed | StageObserved) -> None:
        """Append an event that the fold would act on now, in our turn, and wait until it is folded."""
        if not self._is_needed(event):
            return
        if await self.internal_events.wait_for_turn(
            event.envelope.subject, FLEET_0, lambda: not self._is_needed(event)
        ):
            return
        before = self._replica.position(FLEET_0)
        if await self.internal_events.append(FLEET_0, event.envelope.subject, event):
            await self._replica.fold_waits.wait_for(
                lambda: self._replica.position(FLEET_0) > before and not self._is_needed(event),
                FLEET_0,
                timeout_s=LANDING_S,
            )

    def _is_needed(self, event: StageDpusNamed | StageObserved) -> bool:
        """Whether the fold would change something if this event were its next record."""
        fleet, now_ms = self._states.fleet, self._now_ms()
        if isinstance(event, StageDpusNamed):
            return decide_naming(fleet, event).change is not None
        at = RecordMetadata(FLEET_0, self._replica.position(FLEET_0), now_ms, now_ms)
        return decide_release(fleet, event, at).change is not None
