"""How a rollout advances: which DPUs are released now, when a wave ends, and when a rollout is held.

The decision depends on the state and the time of the log alone. It is safe at any time and any number of times: DPUs
are released only while the plan in force is younger than the objects that it was derived from, and only as many as the
limit of unavailable DPUs leaves room for. A DPU that is unavailable anyway takes nothing out of service.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE
from projections.resources.rollouts.index import SetIndex, WaveStep
from projections.resources.rollouts.pins import fields_of
from projections.resources.rollouts.rows import ON_DELETE, DpuRollout, Revision, Rollout
from projections.resources.state import ObjectId, ResourcesState, object_id
from projections.sizes import scaled_budget, scaled_max_unavailable

RELEASES_MAX = 500
"""Maximum number of DPUs that one record releases: it takes some milliseconds. The others follow with the next one."""
_NAMES_SHOWN = 3


class Advance(NamedTuple):
    """What changes: the row of the rollout, and the rows of released DPUs."""

    rollout: Rollout
    dpus: Mapping[str, DpuRollout]


def is_in_force(state: ResourcesState, key: str, row: Rollout) -> bool:
    """Whether the fold has the whole plan of a DPUSet, and no object that it was derived from has changed since. The
    plan of a DPUSet that is deleted is not in force."""
    if (row.deployment or key) not in state.objects.rows:
        return False
    return state.rollout_index.of(key).digest == row.digest and row.position > last_change(state, key, row)


def last_change(state: ResourcesState, key: str, row: Rollout) -> int:
    """The offset of the last change of a DPUSet, its deployment, the objects that they refer to, or its pin."""
    owners = (key, row.deployment) if row.deployment else (key,)
    found = {each: None for owner in owners for each in (owner, *state.targets(owner))}
    rows = (state.objects.rows.get(each) for each in found)
    return max((row.requested_offset, *(each.changed_offset for each in rows if each is not None)))


def is_image_ready(state: ResourcesState, key: str, row: Rollout) -> bool:
    """Whether the image of a rollout is observed as ready. Until then no DPU is taken out of service for it."""
    at, fields = object_id(key), fields_of(row.template)
    named = ((BFB, fields.get("bfb")), (BLUEFIELD_SOFTWARE, fields.get("blueFieldSoftware")))
    images = (state.seen.get(ObjectId(at.source, kind, at.namespace, name).key) for kind, name in named if name)
    return all(seen is not None and seen.is_ready for seen in images)


def advance(state: ResourcesState, key: str, now_ms: int) -> Advance | None:
    """What happens to the rollout of a DPUSet now; None if nothing does."""
    row = state.rollouts.rows.get(key)
    if row is None or row.strategy == ON_DELETE or row.paused_by or row.is_paused or row.held:
        return None
    if not is_in_force(state, key, row) or not is_image_ready(state, key, row):
        return None
    index = state.rollout_index.of(key)
    if reason := _failure(index, row):
        return Advance(replace(row, held=reason, baked_ms=0), {})
    found = _walk(state, index, row, now_ms)
    return None if found.rollout == row and not found.dpus else found


def _walk(state: ResourcesState, index: SetIndex, row: Rollout, now_ms: int) -> Advance:
    """Release what the present wave lacks, or end waves that are complete until one is not."""
    while True:
        steps = index.open_steps(row.wave)
        step = next((each for each in steps if _is_open(each, row.revision)), None)
        if step is not None:
            dpus = _released(state, index, step, row, now_ms)
            return Advance(replace(row, baked_ms=0, wave_releases=row.wave_releases + len(dpus)), dpus)
        if row.is_last_wave:
            return Advance(_completed(row, now_ms), {})
        if row.wave_releases and row.bake_ms:
            if not row.baked_ms:
                return Advance(replace(row, baked_ms=now_ms + row.bake_ms), {})
            if now_ms < row.baked_ms:
                return Advance(row, {})
        row = replace(row, wave=row.wave + 1, wave_releases=0, baked_ms=0)


def _is_open(step: WaveStep, revision: int) -> bool:
    """Whether a step has DPUs to release, or DPUs that this rollout has released and that are not ready yet."""
    return bool(step.outdated or step.broken or step.moving.get(revision))


def _released(
    state: ResourcesState, index: SetIndex, step: WaveStep, row: Rollout, now_ms: int
) -> Mapping[str, DpuRollout]:
    room = max(0, scaled_max_unavailable(row.max_unavailable, len(index.members)) - index.unavailable)
    keys = heapq.nsmallest(RELEASES_MAX, step.broken)
    keys += heapq.nsmallest(min(room, RELEASES_MAX - len(keys)), step.outdated)
    return {key: release(state.dpu_rollouts.rows[key], row.revision, now_ms) for key in keys}


def release(row: DpuRollout, revision: int, now_ms: int) -> DpuRollout:
    """The row of a DPU that is released to its wanted image."""
    return replace(row, released=row.wanted, revision=revision, is_forgiven=False, released_ms=now_ms)


def _failure(index: SetIndex, row: Rollout) -> str:
    """Why a rollout must be held: more DPUs failed than its budget allows. Empty if it need not."""
    failed = index.failed.get(row.revision, {})
    budget = scaled_budget(row.failure_budget, len(index.members))
    if budget is None or len(failed) <= budget:
        return ""
    names = [object_id(key).name for key in heapq.nsmallest(_NAMES_SHOWN, failed)]
    more = f" and {len(failed) - len(names)} more" if len(failed) > len(names) else ""
    dpus = "1 DPU has" if len(failed) == 1 else f"{len(failed)} DPUs have"
    return f"{dpus} failed, and the failure budget is {budget}: {', '.join(names)}{more}"


def _completed(row: Rollout, now_ms: int) -> Rollout:
    last = row.revisions[-1]
    if last.result:
        return row
    ended = Revision(last.number, last.template, last.began_ms, last.actor, now_ms, "complete")
    return replace(row, revisions=(*row.revisions[:-1], ended), baked_ms=0)
