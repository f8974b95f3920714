"""Requests of operators: pause, resume and undo a rollout, and release single DPUs by deleting them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eventstore.folding.fold import DONE, Decision, Outcome, RecordMetadata, refusal, refused
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.resources.items import check_object_name
from projections.resources.kinds import DPU_DEPLOYMENT, DPU_SET, short_name
from projections.resources.rollouts.advance import release
from projections.resources.rollouts.pins import without_content
from projections.resources.rollouts.rows import DpuRollout, Revision, Rollout
from projections.resources.state import ObjectId, ResourcesChange, ResourcesState
from schemas.events import RolloutRequested

PAUSE, RESUME, UNDO = VERBS = ("pause", "resume", "undo")
KINDS = (DPU_SET, DPU_DEPLOYMENT)
PAUSED_ANNOTATION = "dpuplane.io/rollout-paused"
_NAMED_MAX = 5
"""Number of DPUSets that an outcome names."""


def rollouts_of(state: ResourcesState, key: str) -> list[str]:
    """The keys of the DPUSets with a rollout: the DPUSet itself, or those of a DPUDeployment; sorted."""
    rows = state.rollouts.rows
    return sorted(each for each, row in rows.items() if key in (each, row.deployment))


def decide_request(state: ResourcesState, event: RolloutRequested, at: RecordMetadata) -> Decision:
    """Decide on a request."""
    if (fault := request_fault(event)) is not None:
        return refusal(fault)
    key = ObjectId(event.source, event.kind, event.namespace, event.name).key
    keys = rollouts_of(state, key)
    if not keys:
        reason = f"name: {short_name(key)} has no rollout: it does not exist, or its DPUs are not derived yet"
        return refusal(Fault(reason, Reason.RESOURCE_NOT_FOUND))
    rollouts: dict[str, Rollout | None] = {}
    dpus: dict[str, DpuRollout | None] = {}
    for each in keys:
        row = state.rollouts.rows[each]
        changed = _requested(row, event, at)
        if isinstance(changed, str):
            return refusal(Fault(f"{changed} of {short_name(each)}", Reason.INVALID_FIELD))
        if event.verb == RESUME:
            dpus |= _forgiven(state, each, row)
        if changed != row:
            rollouts[each] = changed
    if not rollouts and not dpus:
        is_annotated = any(state.rollouts.rows[each].is_paused for each in keys)
        return Decision(None, Outcome("unchanged", _unchanged(event, key, is_annotated=is_annotated)))
    outcome = Outcome("done", _returned(state, rollouts, event)) if event.verb == UNDO else DONE
    return Decision(ResourcesChange(rollouts=rollouts, dpu_rollouts=dpus), outcome)


def release_by_deletion(state: ResourcesState, dpu: str, uid: str, now_ms: int) -> DpuRollout | Outcome:
    """The row of a DPU that somebody deletes: it is released to its wanted image at once. Refused if it is already.

    The deletion of a DPU is an explicit wish, so no limit holds it. `uid` is that of an object in Kubernetes, empty
    without one. Its deletion cannot be refused, and has an effect once.
    """
    row = state.dpu_rollouts.rows[dpu]
    if uid and uid == row.deleted_uid:
        return Outcome("unchanged", f"this deletion of {short_name(dpu)} is known")
    if uid and row.released == row.wanted:
        return replace(row, deleted_uid=uid)
    if row.released == row.wanted:
        reason = f"name: {short_name(dpu)} is released to its wanted image {row.wanted} already"
        return refused(Fault(f"{reason}; 'dpuplane dpus provision' installs it again", Reason.DPU_UP_TO_DATE))
    rollout = state.rollouts.rows.get(row.dpu_set)
    released = release(row, rollout.revision if rollout is not None else 0, now_ms)
    return replace(released, deleted_uid=uid or row.deleted_uid)


def request_fault(event: RolloutRequested) -> str | None:
    """The fault of a malformed request."""
    fault = check_zone("source", event.source) or check_object_name("name", event.name)
    fault = fault or check_object_name("namespace", event.namespace)
    if event.kind not in KINDS:
        fault = fault or f"kind: {quoted(event.kind)} must be one of {', '.join(KINDS)}"
    if event.verb not in VERBS:
        fault = fault or f"verb: {quoted(event.verb)} must be one of {', '.join(VERBS)}"
    if event.revision < 0 or (event.revision and event.verb != UNDO):
        fault = fault or f"revision: {event.revision} must be 0, or the number of a revision with {UNDO}"
    return fault


def _requested(row: Rollout, event: RolloutRequested, at: RecordMetadata) -> Rollout | str:
    """The row after a request, or why it cannot be met."""
    actor = event.envelope.actor
    if event.verb == PAUSE:
        return row if row.paused_by else replace(row, paused_by=actor or "an operator", baked_ms=0)
    if event.verb == RESUME:
        return replace(row, paused_by="", held="")
    found = _revision(row, event.revision)
    if isinstance(found, str) or found.template == row.template:
        return found if isinstance(found, str) else row
    if without_content(found.template) == without_content(row.template):
        edit = "differs in objects that were edited in place, whose earlier spec must be applied again"
        return f"revision: {found.number} {edit}: revision {found.number}"
    is_stated = without_content(found.template) == row.stated
    return replace(
        row,
        paused_by="",
        baked_ms=0,
        pin="" if is_stated else found.template,
        pinned_against="" if is_stated else row.stated,
        requested_offset=at.offset,
        requested_by=actor,
    )


def _revision(row: Rollout, number: int) -> Revision | str:
    if number:
        found = next((each for each in row.revisions if each.number == number), None)
        return found or f"revision: {number} is not a revision"
    earlier = (each for each in reversed(row.revisions) if each.template != row.template)
    return next(earlier, None) or "revision: there is no earlier revision"


def _returned(state: ResourcesState, changed: Iterable[str], event: RolloutRequested) -> str:
    """The revision that each changed DPUSet returns to, in one sentence."""
    found = [(key, _revision(state.rollouts.rows[key], event.revision)) for key in changed]
    parts = [f"{short_name(key)} returns to revision {to.number}" for key, to in found if isinstance(to, Revision)]
    return ", ".join(parts[:_NAMED_MAX]) + (", and others" if len(parts) > _NAMED_MAX else "")


def _forgiven(state: ResourcesState, key: str, row: Rollout) -> dict[str, DpuRollout]:
    failed = state.rollout_index.of(key).failed.get(row.revision, {})
    return {dpu: replace(state.dpu_rollouts.rows[dpu], is_forgiven=True) for dpu in failed}


def _unchanged(event: RolloutRequested, key: str, *, is_annotated: bool) -> str:
    if event.verb == RESUME and is_annotated:
        return f"{short_name(key)} is paused by its annotation {PAUSED_ANNOTATION} until that is removed"
    if event.verb == RESUME:
        return f"{short_name(key)} is neither paused nor held"
    return f"{short_name(key)} is {'paused' if event.verb == PAUSE else 'at this revision'} already"
