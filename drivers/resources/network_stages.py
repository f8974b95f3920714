"""Stages of changes of networks: names the DPUs of the next stage, and states how far the DPUs are.

Networks (`networks`) begins a change. Each resources partition has one task.
"""

from __future__ import annotations

import asyncio
from functools import partial

from drivers.resources.partition_task import PartitionTask, TaskContext
from drivers.stage_records import StageRecord, StageRecords
from eventstore.folding.fold import Decision, RecordMetadata
from projections.resources.kinds import DPU, DPU_CLUSTER
from projections.resources.network_documents.needs import NetworkSides
from projections.resources.network_documents.staged import SourceDocuments, source_documents
from projections.resources.network_stages.decide import decide_network_stages
from projections.resources.network_stages.rows import StagedNetworks
from projections.views.network_staging import NetworkStageProgress

PASS_S = 1.0
"""Interval between two looks at the DPUs. Replicas act by rank, so it needs no jitter."""
DPUS_AT_ONCE = 50
"""DPUs that are counted before the loop yields."""


class NetworkStages(PartitionTask):
    """Advances the staged changes of the networks of one resources partition."""

    actor = "network_stages"

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._records = StageRecords(self._replica, self._events, self._partition, self._decide, now_ms=self._now_ms)
        self._documents: dict[str, tuple[object, SourceDocuments]] = {}
        """The documents of each source, and what those before and after its change follow from."""

    async def run(self) -> None:
        """Append the records that are needed, for ever."""
        while True:
            sources = self._under_way()
            self._documents = {source: each for source, each in self._documents.items() if source in sources}
            if not sources:
                await self._replica.fold_waits.changed(self._partition)
                continue
            for source in sources:
                await self._records.advance(partial(self._progress, source), f"{self.actor}/{self._replica.name}")
            await asyncio.sleep(PASS_S)

    def _under_way(self) -> list[str]:
        """The sources with a staged change that has not ended."""
        if self._replica.folded(self._partition).halted:
            return []
        return sorted(source for source, row in self._state.staged_networks.rows.items() if not row.result)

    async def _progress(self, source: str) -> NetworkStageProgress | None:
        """The progress of the staged change of a source; None if it has changed meanwhile."""
        await self._derive()
        state = self._state
        row = state.staged_networks.rows.get(source)
        if row is None or row.result:
            return None
        documents = self._documents_of(source, row)
        if not documents.is_readable:
            return None
        sides = NetworkSides(state, self._derivation, {source: documents}, self._states.zone)
        progress = NetworkStageProgress(
            self._states.fleet,
            sides,
            source,
            row,
            self._states.installs,
            epoch=self._replica.generation,
            now_ms=self._now_ms(),
        )
        is_counted = await self._count(progress, source)
        is_same = self._state is state and state.staged_networks.rows.get(source) is row
        return progress if is_counted and is_same else None

    def _documents_of(self, source: str, row: StagedNetworks) -> SourceDocuments:
        rows, clusters = self._state.objects.rows, self._state.of_kind(source, DPU_CLUSTER)
        cause = row, [(key, rows[key].changed_offset, self._state.serves(key)) for key in clusters]
        known = self._documents.get(source)
        if known is not None and known[0] == cause:
            return known[1]
        earlier = known[1] if known is not None else None
        found = source_documents(self._state, self._derivation, source, earlier)
        self._documents[source] = cause, found
        return found

    async def _count(self, progress: NetworkStageProgress, source: str) -> bool:
        """Count the DPUs of a source. Returns whether all were counted with one derivation."""
        derivation = self._derivation
        for number, key in enumerate([*derivation.dpus.of_kind(source, DPU)], 1):
            progress.add_dpu(key)
            if number % DPUS_AT_ONCE == 0:
                await asyncio.sleep(0)
                await self._derive()
                if self._derivation is not derivation:
                    return False
        return True

    def _decide(self, event: StageRecord, at: RecordMetadata) -> Decision:
        return decide_network_stages(self._state, event, at)
