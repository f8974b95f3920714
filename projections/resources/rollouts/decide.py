"""The decisions about rollouts and allocations, one line per event type."""

from __future__ import annotations

from eventstore.folding.fold import DONE, UNCHANGED, Decision, RecordMetadata, refusal
from projections.field_checks import check_zone
from projections.resources.items import check_object_name
from projections.resources.kinds import DPU_SET
from projections.resources.rollouts.advance import advance
from projections.resources.rollouts.allocations import decide_allocations
from projections.resources.rollouts.plans import decide_plan
from projections.resources.rollouts.requests import decide_request
from projections.resources.rollouts.rows import DpuRollout, Rollout
from projections.resources.state import ObjectId, ResourcesChange, ResourcesState
from schemas.events import DpusAllocated, RolloutAdvanced, RolloutPlanned, RolloutRequested

ROLLOUT_EVENTS = (RolloutPlanned, RolloutAdvanced, RolloutRequested, DpusAllocated)
MAX_ADVANCED = 100
"""Maximum number of DPUSets in one RolloutAdvanced: each may release some hundreds of DPUs."""


def decide_rollouts(
    state: ResourcesState,
    event: RolloutPlanned | RolloutAdvanced | RolloutRequested | DpusAllocated,
    at: RecordMetadata,
) -> Decision:
    """Decide on a record about rollouts or allocations."""
    match event:
        case RolloutPlanned():
            return decide_plan(state, event, at)
        case RolloutAdvanced():
            return _advance(state, event, at)
        case RolloutRequested():
            return decide_request(state, event, at)
        case DpusAllocated():
            return decide_allocations(state, event, at)


def _advance(state: ResourcesState, event: RolloutAdvanced, at: RecordMetadata) -> Decision:
    if (fault := _fault(event)) is not None:
        return refusal(fault)
    rollouts: dict[str, Rollout | None] = {}
    dpus: dict[str, DpuRollout | None] = {}
    for namespace, name in zip(event.namespaces, event.names, strict=True):
        key = ObjectId(event.source, DPU_SET, namespace, name).key
        found = advance(state, key, at.time_ms)
        if found is not None:
            rollouts[key] = found.rollout
            dpus |= found.dpus
    if not rollouts:
        return Decision(None, UNCHANGED)
    return Decision(ResourcesChange(rollouts=rollouts, dpu_rollouts=dpus), DONE)


def _fault(event: RolloutAdvanced) -> str | None:
    count = len(event.names)
    fault = check_zone("source", event.source)
    if not 1 <= count <= MAX_ADVANCED or len(event.namespaces) != count:
        return fault or f"names: {count} items must be from 1 to {MAX_ADVANCED}, with a namespace each"
    for number, (namespace, name) in enumerate(zip(event.namespaces, event.names, strict=True)):
        fault = fault or check_object_name(f"names[{number}]", name)
        fault = fault or check_object_name(f"namespaces[{number}]", namespace)
    if len({*zip(event.namespaces, event.names, strict=True)}) < count:
        fault = fault or "names: a record must name a DPUSet once"
    return fault
