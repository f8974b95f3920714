"""Rollouts: states the plans that follow from the objects, and lets the fold advance them and allocate DPU clusters.

Each resources partition has one task. It derives a plan again only for a DPUSet that a
change concerns, and asks the fold to advance only a DPUSet whose DPUs changed. The fold decides by its own counts, so
records of several replicas, copies, and records of a replica that lags behind do no harm (see
projections/resources/rollouts/advance.py). Every need is computed again after an append of unknown outcome.

The time at which a wave has baked is a time of the log. The task asks at that time by its own clock, and again a little
later if the clock of the log is behind.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from random import Random

from drivers.resources.partition_task import PartitionTask, TaskContext
from projections.resources import kinds
from projections.resources.change_journal import JournalReader
from projections.resources.rollouts.advance import advance
from projections.resources.rollouts.allocating import Proposals, propose
from projections.resources.rollouts.decide import MAX_ADVANCED
from projections.resources.rollouts.planned import Planning, SetPlan, domain_of, next_record
from projections.resources.state import object_id
from schemas.events import DpusAllocated, Event, RolloutAdvanced

WINDOW_S = 0.2
"""Time after a pass in which changes gather for the next one."""
LANDING_S = 2.0
"""Longest wait for the fold to show an append."""
RETRY_S = 1.0
"""Wait before needs that could not be met are computed again, with jitter."""
ALLOCATIONS_MAX = 500
"""Number of DPUs of one proposal: some milliseconds of work."""

_OF_ALL = frozenset((kinds.BFB, kinds.BLUEFIELD_SOFTWARE, kinds.DPU_FLAVOR, kinds.DPU_FLAVOR_TEMPLATE))
"""Kinds whose changes may concern any DPUSet. They are rare."""

logger = logging.getLogger(__name__)


class Rollouts(PartitionTask):
    """The rollouts of one resources partition."""

    actor = "rollouts"

    def __init__(self, context: TaskContext, *, rng: Random) -> None:
        super().__init__(context)
        self._rng = rng
        self._stated, self._wanted, self._moved = JournalReader(), JournalReader(), JournalReader()
        self._plans: dict[str, None] = {}
        """The DPUSets whose plan must be derived again."""
        self._planned_last: dict[str, SetPlan] = {}
        """The last plan of each DPUSet, without its DPUs."""
        self._moving: dict[str, None] = {}
        """The DPUSets that may advance."""
        self._baking: dict[str, int] = {}
        """The time at which the present wave of a DPUSet has baked."""
        self._unallocated: dict[str, None] = {}
        """The DPUs that may need a DPU cluster, or give back their place in one."""
        self._waiting: dict[str, None] = {}
        """The DPUs for which there is no DPU cluster now."""
        self._is_behind = False
        """Whether the last pass left a need."""

    async def run(self) -> None:
        while True:
            await self._replica.fold_waits.wait_for(self._is_changed, self._partition, timeout_s=self._patience_s())
            if self._replica.folded(self._partition).halted:
                await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
                continue
            self._is_behind = False
            await self._take_changes()
            has_acted = await self._state_plans()
            has_acted |= await self._advance()
            has_acted |= await self._allocate()
            if has_acted:
                await asyncio.sleep(WINDOW_S)

    def _is_changed(self) -> bool:
        state = self._state
        return self._stated.is_behind(state.journal) or self._moved.is_behind(state.rollout_index.journal)

    def _patience_s(self) -> float | None:
        """How long nothing needs to be done without a change; None for any time."""
        waits = [max(0.0, (at_ms - self._now_ms()) / 1_000) for at_ms in self._baking.values()]
        if self._is_behind or any(wait_s == 0 for wait_s in waits):
            return RETRY_S * self._rng.uniform(0.5, 1.5)
        return min(waits, default=None)

    async def _take_changes(self) -> None:
        """Note the DPUSets and DPUs that changes concern."""
        changed = self._stated.read(self._state.journal)
        await self._derive()
        state, derivation = self._state, self._derivation
        wanted = self._wanted.read(self._live.changed)
        moved = self._moved.read(state.rollout_index.journal)
        if changed is None or wanted is None or any(object_id(key).kind in _OF_ALL for key in changed):
            self._plans |= dict.fromkeys((*derivation.sets, *state.rollouts.rows))
            self._moving |= dict.fromkeys(state.rollouts.rows)
            self._unallocated |= dict.fromkeys((*derivation.dpus.winners, *state.allocations.rows))
        else:
            for key in changed:
                self._note_object(key)
            for key in wanted:
                self._note_wanted(key)
        self._moving |= dict.fromkeys(state.rollouts.rows if moved is None else moved)
        self._moving |= {key: None for key, at_ms in self._baking.items() if at_ms <= self._now_ms()}

    def _note_object(self, key: str) -> None:
        """Note what the change of an object, or of what is observed of it, concerns."""
        at, derivation, state = object_id(key), self._derivation, self._state
        if at.kind == kinds.DPU_SET:
            self._plans[key] = None
        elif at.kind == kinds.DPU_DEPLOYMENT:
            self._plans |= {each: None for each, row in state.rollouts.rows.items() if row.deployment == key}
            children = derivation.children.of_owner(key)
            self._plans |= {each: None for each in children if object_id(each).kind == kinds.DPU_SET}
        elif at.kind in (kinds.NODE, kinds.DPU_NODE):
            self._note_host(key)
        elif at.kind == kinds.DPU_CLUSTER:
            self._unallocated |= self._waiting
            self._unallocated |= {dpu: None for dpu, row in state.allocations.rows.items() if row.cluster == key}
        elif at.kind == kinds.DPU and (key in self._waiting or key in state.allocations.rows):
            self._unallocated[key] = None

    def _note_host(self, key: str) -> None:
        """Note the DPUSets whose order changes with a host. A plan of ten thousand DPUs takes a tenth of a second, and
        hosts change all the time, but rarely their failure domain."""
        selection = self._derivation.selection
        for device in selection.hosts.of_host(key):
            owner = selection.winner(device)
            plan = self._planned_last.get(owner or "")
            if owner is None or owner in self._plans:
                continue
            if plan is None or plan.domains.get(device, "") != domain_of(self._derivation, device, plan.strategy):
                self._plans[owner] = None

    def _note_wanted(self, key: str) -> None:
        """Note what the change of a wanted object concerns."""
        kind = object_id(key).kind
        if kind == kinds.DPU_SET:
            self._plans[key] = None
        elif kind == kinds.DPU:
            known, wanted = self._state.dpu_rollouts.rows.get(key), self._derivation.dpus.winners.get(key)
            self._plans |= {each: None for each in (known and known.dpu_set, wanted and wanted.owner) if each}
            self._unallocated[key] = None

    async def _state_plans(self) -> bool:
        """State what the fold lacks of the noted plans. Returns whether anything was stated."""
        records = 0
        for key in [*self._plans]:
            del self._plans[key]
            await self._derive()
            position = self._replica.position(self._partition)
            plan = await self._planned(key)
            self._planned_last.pop(key, None)
            if plan is not None:
                if plan.template:
                    self._planned_last[key] = plan._replace(dpus=())
                records += await self._state_plan(plan, position)
        return records > 0

    async def _planned(self, key: str) -> SetPlan | None:
        planning = Planning(self._state, self._derivation, key)
        while True:
            if planning.advance():
                return planning.plan
            await asyncio.sleep(0)

    async def _state_plan(self, plan: SetPlan, position: int) -> int:
        """State what the fold lacks of a plan, record by record; the number of records. A plan that is refused is
        derived again."""
        records, last, envelope = 0, None, self._envelope(plan.at.name)
        while (event := next_record(self._state, plan, position, envelope)) is not None:
            if event == last:  # it has no effect: an object has changed since
                self._plans[plan.at.key] = None
                self._is_behind = True
                break
            last = event
            await self._append(plan.at.key, event)
            records += 1
        return records

    async def _advance(self) -> bool:
        """Let the fold advance the noted rollouts. Returns whether it was asked."""
        now_ms, by_source = self._now_ms(), dict[str, list[str]]()
        for key in [*self._moving]:
            del self._moving[key]
            row = self._state.rollouts.rows.get(key)
            self._baking.pop(key, None)
            if advance(self._state, key, now_ms) is not None:
                by_source.setdefault(object_id(key).source, []).append(key)
            elif row is not None and row.baked_ms:
                self._baking[key] = row.baked_ms
        for source, keys in by_source.items():
            pending = iter(keys)
            while part := [*islice(pending, MAX_ADVANCED)]:
                await self._advance_some(source, part)
        return bool(by_source)

    async def _advance_some(self, source: str, keys: list[str]) -> None:
        ids = [object_id(key) for key in keys]
        event = RolloutAdvanced(
            self._envelope(source), source, [each.namespace for each in ids], [each.name for each in ids]
        )
        before = self._state.rollout_index.journal.revision
        await self._append(f"{self._partition}/{keys[0]}", event)
        if self._state.rollout_index.journal.revision == before:  # not folded yet, or the clock of the log is behind
            self._moving |= dict.fromkeys(keys)
            self._is_behind = True

    async def _allocate(self) -> bool:
        """Propose DPU clusters for the noted DPUs. Returns whether any was proposed."""
        has_proposed = False
        pending = iter([*self._unallocated])
        self._unallocated.clear()
        while keys := [*islice(pending, ALLOCATIONS_MAX)]:
            for key in keys:
                self._waiting.pop(key, None)
            await self._derive()
            position = self._replica.position(self._partition)
            found = propose(self._state, self._derivation, keys)
            self._waiting |= found.waiting
            if found.clusters:
                has_proposed = True
                await self._propose(found, position)
            await asyncio.sleep(0)
        return has_proposed

    async def _propose(self, found: Proposals, position: int) -> None:
        by_source: dict[str, list[str]] = {}
        for key in found.clusters:
            by_source.setdefault(object_id(key).source, []).append(key)
        for source, dpus in by_source.items():
            ids = [object_id(key) for key in dpus]
            clusters = [object_id(found.clusters[key]) if found.clusters[key] else None for key in dpus]
            event = DpusAllocated(
                self._envelope(source),
                source,
                position,
                [each.namespace for each in ids],
                [each.name for each in ids],
                [f"{each.namespace}/{each.name}" if each is not None else "" for each in clusters],
            )
            await self._append(f"{self._partition}/allocations", event)
            await self._derive()
            left = propose(self._state, self._derivation, dpus).clusters
            if left:  # not folded yet, or a DPU cluster has changed since
                self._unallocated |= dict.fromkeys(left)
                self._is_behind = True

    async def _append(self, subject: str, event: Event) -> None:
        """Wait for our turn, append a record, and wait until it is folded. Another replica may append an equal record
        first: the caller computes its need again."""
        revisions = self._revisions()
        if await self._events.wait_for_turn(subject, self._partition, lambda: self._revisions() != revisions):
            return
        before = self._replica.position(self._partition)

        def is_folded() -> bool:
            return self._replica.position(self._partition) > before

        if not await self._events.append(self._partition, event.envelope.subject, event):
            self._is_behind = True
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
            return
        await self._replica.fold_waits.wait_for(is_folded, self._partition, timeout_s=LANDING_S)

    def _revisions(self) -> tuple[int, int]:
        """Numbers that change with every decision about rollouts and allocations."""
        return self._state.rollout_index.journal.revision, self._state.journal.revision
