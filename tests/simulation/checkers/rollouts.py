"""Rollouts: within the limits that DPUSets state, and not beyond what the fold has released.

The counts here are made from rows and specs alone, DPU by DPU. The fold counts by an index that it keeps up to date.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from deploy.composition.roles import folds_of
from eventstore.folding.fold import folds_by_version
from eventstore.log import RESOURCES, ZONES, Partition
from projections.resources.derivation import Derivation
from projections.resources.rollouts.advance import advance
from projections.resources.rollouts.planned import next_record, set_plan
from projections.resources.rollouts.rows import DpuRollout
from projections.resources.state import Observed, Resource, ResourcesState
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence, Records, log_id_of
from tests.simulation.fresh import Step, refold
from tests.simulation.plan import PARTITIONS

Found = Iterator[str]

_NOW = 1 << 62
"""A position after all others."""
_CHECKER = e.Envelope("", "", "checker", 0)


class _Rows:
    """The rows of a resources partition, step by step."""

    def __init__(self) -> None:
        self.dpus: dict[str, DpuRollout] = {}
        self.works: dict[str, bool] = {}
        """Whether each DPU is ready with the image that it was released to."""
        self._objects: dict[str, Resource] = {}
        self._observed: dict[str, Observed] = {}

    def apply(self, step: Step) -> dict[str, list[str]]:
        """Apply a step; returns the DPUs that it took out of service by releasing them, by DPUSet."""
        tables: tuple[tuple[str, dict[str, Any]], ...] = (
            ("objects", self._objects),
            ("observed", self._observed),
            ("dpu_rollouts", self.dpus),
        )
        before, touched = {}, dict.fromkeys(key for name, _ in tables[1:] for key, _ in step.rows.get(name, ()))
        for key in touched:
            before[key] = self.dpus.get(key), self.works.get(key, False)
        for name, table in tables:
            for key, row in step.rows.get(name, ()):
                table.pop(key, None)
                if row is not None:
                    table[key] = row
        taken = defaultdict(list)
        for key in touched:
            (old, worked), new = before[key], self.dpus.get(key)
            self.works[key] = new is not None and self._installed(key) == new.released
            if worked and old is not None and new is not None and new.released != old.released:
                taken[new.dpu_set].append(key)
        return taken

    def _installed(self, key: str) -> str | None:
        """The image of a DPU that is ready; None if it is not."""
        row = self._observed.get(key)
        seen = msgspec.json.decode(row.observation) if row is not None else {}
        return seen.get("installed") if seen.get("ready") else None

    def limit(self, dpu_set: str, total: int) -> int:
        """How many of the DPUs of a DPUSet may be unavailable, as its spec says; 0 if rollouts may not take any."""
        row = self._objects.get(dpu_set)
        strategy: Mapping[str, Any] = (msgspec.json.decode(row.spec).get("strategy") or {}) if row is not None else {}
        if strategy.get("type") != "RollingUpdate":
            return 0
        text = str((strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1))
        number = math.ceil(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)
        return max(1, min(total, number))


def check_limits(run: Evidence) -> Found:
    """I13: a release takes a DPU out of service only if, with it, no more DPUs of its DPUSet are unavailable than
    maxUnavailable allows. A user who deletes a DPU releases it whatever the limit.
    """
    for partition, steps in run.steps.items():
        if partition.topic != RESOURCES:
            continue
        rows = _Rows()
        for step in steps:
            for dpu_set, taken in rows.apply(step).items():
                if isinstance(step.event, e.ResourcesDeleted):
                    continue
                members = [key for key, row in rows.dpus.items() if row.dpu_set == dpu_set]
                unavailable, limit = sum(not rows.works[key] for key in members), rows.limit(dpu_set, len(members))
                if unavailable > limit:
                    about = f"{unavailable} of {len(members)} DPUs of {dpu_set} are unavailable, and {limit} may be"
                    yield f"{partition}@{step.record.offset} releases {', '.join(sorted(taken))}: {about}"


def taken_count(records: Records) -> int:
    """The number of DPUs that releases took out of service. Without any, a run proves nothing about limits."""
    count, log_id, folds = 0, log_id_of(records), folds_by_version(folds_of(PARTITIONS))
    for partition, found in records.items():
        if partition.topic == RESOURCES:
            rows = _Rows()
            _, steps = refold(partition, found, folds[RESOURCES], log_id)
            count += sum(len(taken) for step in steps for taken in rows.apply(step).values())
    return count


def check_releases(run: Evidence) -> Found:
    """I13: a zone is told another image of a DPU only as the fold had released it when the statement was derived."""
    released = {p.number: _Released(steps) for p, steps in run.steps.items() if p.topic == RESOURCES}
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        images: dict[str, str] = {}
        for step in steps:
            for name, row in step.rows.get("wanted_dpus", ()):
                image = row.image if row is not None else ""
                if image and image != images.get(name) and isinstance(step.event, e.DpusWanted):
                    may_have = released[step.event.cause_partition].at(row.object, step.event.to_offset)
                    if may_have not in ("", image):
                        yield f"{partition}@{step.record.offset} wants {image} on {name}, released to {may_have}"
                images[name] = image


class _Released:
    """The image that each DPU of a resources partition was released to, by position."""

    def __init__(self, steps: list[Step]) -> None:
        self._changes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for step in steps:
            for key, row in step.rows.get("dpu_rollouts", ()):
                self._changes[key].append((step.position, row.released if row is not None else ""))

    def at(self, dpu: str, position: int) -> str:
        """The image at a position; empty if the DPU had no plan."""
        changes = self._changes[dpu]
        place = bisect_right(changes, position, key=lambda change: change[0])
        return changes[place - 1][1] if place else ""


def check_advanced(run: Evidence) -> Found:
    """I16, at rest: the fold has the plan of each DPUSet, and each rollout has advanced as far as it can."""
    for partition, folded in run.folded.items():
        if partition.topic == RESOURCES:
            yield from _fault_of_plans(partition, folded.state, folded.time_ms)


def _fault_of_plans(partition: Partition, state: ResourcesState, now_ms: int) -> Found:
    derivation = Derivation()
    derivation.update(state, {**state.objects.rows, **state.observed.rows})
    for key in sorted({*derivation.sets, *state.rollouts.rows}):
        plan = set_plan(state, derivation, key)
        if plan is not None and next_record(state, plan, _NOW, _CHECKER) is not None:
            yield f"{partition} lacks the plan of {key}"
        elif advance(state, key, now_ms) is not None:
            yield f"{partition}: the rollout of {key} has not advanced"
