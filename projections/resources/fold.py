"""The fold of resources: the objects of each source cluster, or of a plane without Kubernetes, as users want them.

Objects of a Kubernetes cluster are taken as the cluster reports them: it has decided on uid, generation and removal.
For other objects the fold decides what an API server would: it assigns uid and generation, refuses a change that was
made from another generation, and keeps a deleted object until no other object refers to it (removals.py).

Observations of the real things behind the objects are kept beside them (observations.py), and so are the networks of
sources whose changes go in stages (network_stages). The DPUs of a DPUSet, the children of a DPUDeployment and all else
that follows from the objects are derived from this state and never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import (
    DONE,
    UNCHANGED,
    Decision,
    Outcome,
    RecordMetadata,
    normalize,
    refusal,
    refused,
)
from eventstore.ids import part_id
from eventstore.log import RESOURCES, Partition
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.item_outcomes import merged
from projections.resources.annotations import of_edit, of_manifest
from projections.resources.items import Applied, Deleted, applied_items, deleted_items
from projections.resources.network_stages.decide import (
    NETWORK_STAGE_EVENTS,
    decide_network_stages,
    with_object_marks,
)
from projections.resources.observations import observe
from projections.resources.placements import place
from projections.resources.removals import with_removals
from projections.resources.rollouts.decide import ROLLOUT_EVENTS, decide_rollouts
from projections.resources.rollouts.endings import with_endings
from projections.resources.rollouts.requests import release_by_deletion
from projections.resources.rollouts.rows import DpuRollout
from projections.resources.state import LOCAL, MAX_OBJECTS, Resource, ResourcesChange, ResourcesState
from schemas.events import (
    DpusAllocated,
    DpusPlaced,
    Envelope,
    Event,
    NetworksStaged,
    ResourcesApplied,
    ResourcesDeleted,
    ResourcesObserved,
    RolloutAdvanced,
    RolloutPlanned,
    RolloutRequested,
    StageDpusNamed,
    StageObserved,
    StagesRequested,
)

__all__ = ["ResourcesFold", "ResourcesState"]


class _ItemDecision(NamedTuple):
    """The new row of an object (None removes it), or no change; and the outcome. `released` is the new row of a DPU's
    rollout."""

    outcome: Outcome
    row: Resource | None = None
    is_change: bool = False
    released: DpuRollout | None = None


class _Identity(NamedTuple):
    """The first fields of a row."""

    uid: str
    generation: int
    created_ms: int


class ResourcesFold:
    """The resources fold, version 1."""

    topic = RESOURCES
    version = 1
    accepts = frozenset(
        event.__name__
        for event in (ResourcesApplied, ResourcesDeleted, DpusPlaced, *ROLLOUT_EVENTS, *NETWORK_STAGE_EVENTS)
    ) | {"ResourcesObserved.v2"}

    def initial_state(self, partition: Partition) -> ResourcesState:
        return ResourcesState()

    def decide(self, state: ResourcesState, event: Event, at: RecordMetadata) -> Decision:
        decision = self._decide(state, event, at)
        if decision.change is None:
            return decision
        change = with_removals(state, decision.change)
        ended = with_endings(state, change)
        if ended is not change:  # a pin that ends may have been the last use of an object
            change = with_removals(state, ended)
        return decision._replace(change=with_object_marks(state, change, at))

    def _decide(self, state: ResourcesState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case ResourcesApplied():
                applied = applied_items(event, at.time_ms)
                if isinstance(applied, str):
                    return refusal(applied)
                decisions = list(_applied(state, applied, event.envelope, at))
                return _decision(state, [item.at.key for item in applied], decisions)
            case ResourcesDeleted():
                deleted = deleted_items(event)
                if isinstance(deleted, str):
                    return refusal(deleted)
                decisions = [_delete(state, item, at) for item in deleted]
                return _decision(state, [item.at.key for item in deleted], decisions)
            case ResourcesObserved():
                return observe(state, event, at)
            case DpusPlaced():
                return place(state, event, at)
            case RolloutPlanned() | RolloutAdvanced() | RolloutRequested() | DpusAllocated():
                return decide_rollouts(state, event, at)
            case NetworksStaged() | StageDpusNamed() | StageObserved() | StagesRequested():
                return decide_network_stages(state, event, at)
            case _:
                return refusal(f"event: {type(event).__name__} is not an event of the resources topic")

    def evolve(self, state: ResourcesState, change: ResourcesChange, at: RecordMetadata) -> None:
        state.evolve(change)


def _applied(
    state: ResourcesState, items: Sequence[Applied], said: Envelope, at: RecordMetadata
) -> Iterator[_ItemDecision]:
    room = MAX_OBJECTS - len(state.objects.rows)
    for number, item in enumerate(items):
        known = state.objects.rows.get(item.at.key)
        if known is None and room <= 0:
            reason = f"name: {quoted(item.at.name)} would be more than the {MAX_OBJECTS} objects allowed"
            yield _ItemDecision(refused(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_OBJECTS)))
            continue
        decision = _apply(item, known, number, said, at)
        room -= known is None and decision.is_change
        yield decision


def _apply(item: Applied, known: Resource | None, number: int, said: Envelope, at: RecordMetadata) -> _ItemDecision:
    row = _external(item, known, said, at) if item.uid else _local(item, known, number, said, at)
    if isinstance(row, Outcome):
        return _ItemDecision(row)
    outcome = Outcome("done", result={"generation": row.generation})
    if known is not None and _content(row) == _content(known):
        return _ItemDecision(replace(outcome, code="unchanged"))
    return _ItemDecision(outcome, row, is_change=True)


def _content(row: Resource) -> Resource:
    return replace(row, changed_ms=0, changed_offset=0, actor="", version=0)


def _external(item: Applied, known: Resource | None, said: Envelope, at: RecordMetadata) -> Resource | Outcome:
    """The row of an object as its cluster reports it, unless the report is older than the row. An older report that
    names the generation of the row replaces it: the cluster was restored from a backup."""
    if known is not None and known.is_external and item.expected_generation != known.generation:
        newest = (known.created_ms, known.uid, known.generation)
        is_late = item.uid == known.uid and 0 < item.version < known.version
        if is_late or (item.created_ms, item.uid, item.generation) < newest:
            return Outcome("unchanged", f"generations: a newer state of {quoted(item.at.name)} is known")
    return _row(item, _Identity(item.uid, item.generation, item.created_ms), said, at)


def _local(
    item: Applied, known: Resource | None, number: int, said: Envelope, at: RecordMetadata
) -> Resource | Outcome:
    """The row of an object of a plane without Kubernetes, with uid and generation as an API server assigns them."""
    if known is None:
        if item.expected_generation > 0 or item.expected_revision >= 0:
            return refused(_not_found(item))
        uid = part_id(said.command_id, number + 1) if said.command_id else f"{at.offset}-{number}"
        return _row(item, _Identity(uid, 1, at.time_ms), said, at)
    if known.is_external:
        reason = f"uids: {quoted(item.at.name)} belongs to a Kubernetes cluster, which alone may change it"
        return refused(Fault(reason, Reason.RESOURCE_CHANGED, generation=known.generation))
    if known.deleted_ms:
        return refused(Fault(f"name: {quoted(item.at.name)} is being deleted", Reason.RESOURCE_DELETED))
    if item.expected_generation not in (-1, known.generation):
        reason = f"expected_generations: {quoted(item.at.name)} has generation {known.generation}, not"
        reason = f"{reason} {item.expected_generation}"
        return refused(Fault(reason, Reason.RESOURCE_CHANGED, generation=known.generation))
    if item.expected_revision not in (-1, known.changed_offset):
        reason = f"expected_revisions: {quoted(item.at.name)} was changed at {known.changed_offset}, after"
        reason = f"{reason} {item.expected_revision}"
        return refused(Fault(reason, Reason.RESOURCE_CHANGED, generation=known.generation))
    generation = known.generation + (item.spec != known.spec)
    is_edit = item.expected_revision != -1
    stated = of_edit(item.annotations, known) if is_edit else of_manifest(item.annotations, known)
    row = _row(item, _Identity(known.uid, generation, known.created_ms), said, at)
    return replace(row, annotations=stated.annotations, edited=stated.edited)


def _row(item: Applied, identity: _Identity, said: Envelope, at: RecordMetadata) -> Resource:
    is_external = bool(item.uid)
    return Resource(
        *identity,
        changed_ms=at.time_ms,
        changed_offset=at.offset,
        labels=item.labels,
        annotations=item.annotations,
        spec=item.spec,
        deleted_ms=item.deleted_ms if is_external else 0,
        is_external=is_external,
        actor=said.actor,
        version=item.version if is_external else 0,
    )


def _delete(state: ResourcesState, item: Deleted, at: RecordMetadata) -> _ItemDecision:
    known = state.objects.rows.get(item.at.key)
    if known is None and item.at.key in state.dpu_rollouts.rows:
        uid = item.uid if item.at.source != LOCAL else ""
        released = release_by_deletion(state, item.at.key, uid, at.time_ms)
        return _ItemDecision(DONE, released=released) if isinstance(released, DpuRollout) else _ItemDecision(released)
    if known is None or item.uid not in ("", known.uid):
        return _ItemDecision(Outcome("unchanged", str(_not_found(item))))
    if known.is_external:
        return _ItemDecision(DONE, None, is_change=True)
    if known.deleted_ms:
        return _ItemDecision(UNCHANGED)
    row = replace(known, deleted_ms=at.time_ms, changed_ms=at.time_ms, changed_offset=at.offset)
    return _ItemDecision(DONE, row, is_change=True)


def _not_found(item: Applied | Deleted) -> Fault:
    return Fault(f"name: {quoted(item.at.name)} of kind {item.at.kind} does not exist", Reason.RESOURCE_NOT_FOUND)


def _decision(state: ResourcesState, keys: Sequence[str], decisions: Sequence[_ItemDecision]) -> Decision:
    rows = {key: each.row for key, each in zip(keys, decisions, strict=True) if each.is_change}
    outcomes = [each.outcome for each in decisions]
    outcome = outcomes[0] if len(outcomes) == 1 else merged(keys, outcomes)
    change = ResourcesChange(
        objects=rows,
        dpu_rollouts={key: each.released for key, each in zip(keys, decisions, strict=True) if each.released},
    )
    return normalize(Decision(change if change.objects or change.dpu_rollouts else None, outcome))
