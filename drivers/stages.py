"""Stages of changes of policies: names the DPUs of the next stage, and states how far the DPUs are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from drivers.internal_events import InternalEvents
from drivers.stage_records import StageRecord, StageRecords
from eventstore.folding.fold import Decision, RecordMetadata
from eventstore.log import FLEET_0
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.fleet.staging.decide import decide_naming
from projections.fleet.staging.release import decide_release
from projections.fold_states import FoldStates
from projections.views.staging import PolicyStageProgress
from schemas.events import StageDpusNamed

PASS_S = 1.0
"""Interval between two looks at the DPUs, with jitter."""
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
        self._records = StageRecords(replica, self.internal_events, FLEET_0, self._decide, now_ms=now_ms)

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            if not self._is_under_way():
                await self._replica.fold_waits.changed(FLEET_0)
                continue
            await self._records.advance(self._progress, self._actor)
            await asyncio.sleep(PASS_S * self._rng.uniform(0.5, 1.5))

    def _is_under_way(self) -> bool:
        staged = self._states.fleet.staged
        return staged is not None and not staged.result and not self._replica.folded(FLEET_0).halted

    async def _progress(self) -> PolicyStageProgress | None:
        """The progress of the present change; None if it has changed meanwhile."""
        staged, fleet = self._states.fleet.staged, self._states.fleet
        if staged is None:
            return None
        progress = PolicyStageProgress(fleet, staged, epoch=self._replica.generation, now_ms=self._now_ms())
        count = 0
        for state in self._states.all_zones():
            for zone in sorted(state.dpu_index.zones):
                progress.add_zone(zone, state, self._states.installs(zone))
                count += 1
                if count % ZONES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return progress if self._states.fleet.staged is staged else None

    def _decide(self, event: StageRecord, at: RecordMetadata) -> Decision:
        fleet = self._states.fleet
        return decide_naming(fleet, event) if isinstance(event, StageDpusNamed) else decide_release(fleet, event, at)
