"""The end of a rollout whose DPUSet is gone: its row leaves with the last of the DPUSet and its DPUs.

Without it, a driver would have to state an empty plan for each deleted DPUSet that has no DPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.kinds import DPU_DEPLOYMENT, DPU_SET
from projections.resources.state import ResourcesChange, ResourcesState, object_id


def with_endings(state: ResourcesState, change: ResourcesChange) -> ResourcesChange:
    """A change, with the removal of each rollout that has neither an object that wants it nor a DPU after it."""
    if not (change.objects or change.dpu_rollouts):
        return change
    ended = {key: None for key in dict.fromkeys(_concerned(state, change)) if _is_ended(state, change, key)}
    return change._replace(rollouts={**change.rollouts, **ended}) if ended else change


def _concerned(state: ResourcesState, change: ResourcesChange) -> Iterator[str]:
    """The rollouts that lose their object or a DPU."""
    for key, row in change.objects.items():
        if row is not None:
            continue
        kind = object_id(key).kind
        if kind == DPU_SET:
            yield key
        elif kind == DPU_DEPLOYMENT:
            yield from (each for each, rollout in state.rollouts.rows.items() if rollout.deployment == key)
    for dpu, after in change.dpu_rollouts.items():
        before = state.dpu_rollouts.rows.get(dpu)
        if before is not None and (after is None or after.dpu_set != before.dpu_set):
            yield before.dpu_set


def _is_ended(state: ResourcesState, change: ResourcesChange, key: str) -> bool:
    row = change.rollouts.get(key, state.rollouts.rows.get(key))
    if row is None:
        return False
    owner = row.deployment or key
    if change.objects.get(owner, state.objects.rows.get(owner)) is not None:
        return False
    if any(each is not None and each.dpu_set == key for each in change.dpu_rollouts.values()):
        return False
    return all(dpu in change.dpu_rollouts for dpu in state.rollout_index.of(key).members)
