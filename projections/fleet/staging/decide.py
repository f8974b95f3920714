"""Decisions about the present staged change: naming of DPUs, release of stages, holds, and requests of operators.

The decision depends on the state, the time of the log and the statement alone. A statement names the change and the
number of released stages that its driver saw. So copies, and statements of a driver that lags behind, change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_name, check_text, check_zone, quoted
from projections.fleet.staging.rows import (
    COMPLETE,
    MAX_FAILED_DPUS,
    MAX_NAMED_DPUS,
    PATIENCE_MS,
    UNDONE,
    StagedChange,
    StagedDpus,
    stage_label,
)
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import BudgetKind
from projections.rules.policies import matches
from projections.sizes import read_size
from schemas.events import MAX_ITEMS, StageDpusNamed, StageObserved, StagesRequested

PAUSE, RESUME, UNDO = VERBS = ("pause", "resume", "undo")
MAX_REASON = 253
_NAMES_SHOWN = 3


class DpusNamed(NamedTuple):
    """DPUs of the next stage, with those that their zones had already."""

    rows: dict[str, StagedDpus]


class StageReleased(NamedTuple):
    """The next stage is released. `charged` is what counts against the budgets: budget, id of a list, and number of
    addresses."""

    row: StagedChange
    charged: tuple[tuple[BudgetKind, str, int], ...] = ()


class StagingUpdated(NamedTuple):
    """The change is paused, held or resumed, or DPUs have failed: no list changes."""

    row: StagedChange


class StagingUndone(NamedTuple):
    """The change is rolled back."""

    row: StagedChange


class StagingFinished(NamedTuple):
    """The change has ended: all DPUs of a zone should have the same list again."""

    row: StagedChange


def fault_of_edit(state: FleetState, *, policy: str = "", zone: str = "") -> Fault | None:
    """Why a policy, or the labels of a zone, cannot be edited while a change is staged."""
    staged = state.staged
    if staged is None or staged.result:
        return None
    if (policy and policy == staged.policy and staged.is_open) or zone:
        what = f"name: {quoted(policy)}" if policy else f"zone: labels of {quoted(zone)}"
        return _fault(f"{what} cannot be edited while", staged)
    return None


def fault_of_another(state: FleetState) -> Fault | None:
    """Why no other change can be staged now."""
    staged = state.staged
    return _fault("name: no other change can be staged while", staged) if staged and staged.is_open else None


def decide_naming(state: FleetState, event: StageDpusNamed) -> Decision:
    """Add DPUs to the next stage. A DPU that is named already keeps its stage."""
    staged = state.staged
    if (fault := _fault_of_naming(state, staged, event)) is not None:
        return refusal(fault)
    assert staged is not None
    rows: dict[str, StagedDpus] = {}
    fresh = 0
    for zone, dpu in zip(event.zones, event.dpus, strict=True):
        known = rows.get(zone) or state.staged_dpus.rows.get(zone) or StagedDpus({})
        if dpu not in known.stages:
            rows[zone] = StagedDpus({**known.stages, dpu: event.stage})
            fresh += 1
    limit = _limit(staged.plan.stages[event.stage - 1], event.total)
    named = state.named_dpus.total() + fresh
    if named > limit:
        reason = f"dpus: {named} named DPUs would be more than the {limit} of stage {event.stage}"
        return refusal(Fault(reason, Reason.LIMIT_REACHED, limit=limit))
    return Decision(DpusNamed(rows), DONE) if rows else Decision(None, UNCHANGED)


def _fault_of_naming(state: FleetState, staged: StagedChange | None, event: StageDpusNamed) -> str | None:
    if len(event.zones) != len(event.dpus) or len(event.dpus) > MAX_ITEMS:
        return f"dpus: {len(event.dpus)} DPUs must be as many as zones, and at most {MAX_ITEMS}"
    if event.total < 0:
        return f"total: {event.total} must be 0 or more"
    for zone, dpu in zip(event.zones, event.dpus, strict=True):
        if fault := check_zone("zones", zone) or check_name("dpus", dpu):
            return fault
    if staged is None or not staged.is_open or staged.version != event.change:
        return Fault(f"change: {event.change} is not the version of an open staged change", Reason.OUT_OF_ORDER)
    if event.stage != staged.stage + 1 or event.stage >= len(staged.plan.stages):
        return Fault(f"stage: {event.stage} is not the next stage, or is the last one", Reason.OUT_OF_ORDER)
    wanted = stage_label(staged.plan.stages[event.stage - 1])
    for zone in dict.fromkeys(event.zones):
        labels = state.zone(zone).labels
        if not staged.concerns(labels) or (wanted is not None and not matches(wanted, labels)):
            return Fault(f"zones: {quoted(zone)} is not in stage {event.stage}", Reason.OUT_OF_ORDER)
    return None


def _limit(stage: str, total: int) -> int:
    """The maximum number of DPUs that are named up to a stage."""
    size = read_size(stage)
    return min(MAX_NAMED_DPUS, size.of(total)) if size is not None else MAX_NAMED_DPUS


def decide_observation(state: FleetState, event: StageObserved, at: RecordMetadata) -> Decision:
    """Release the next stage, hold the change, or end it, if what a driver saw allows it."""
    staged = state.staged
    if (fault := _fault_of_observation(staged, event)) is not None:
        return refusal(fault)
    assert staged is not None
    has_waited = at.time_ms >= staged.since_ms + max(staged.plan.bake_ms, PATIENCE_MS)
    if staged.undone_by:
        may_end = not event.waiting or has_waited
        return Decision(StagingFinished(ended(staged, at)), DONE) if may_end else Decision(None, UNCHANGED)
    row = _with_failures(staged, event)
    has_baked = not row.stage or at.time_ms >= row.since_ms + row.plan.bake_ms
    if row.held or row.paused_by or event.waiting or not has_baked:
        is_held = row.held and not staged.held
        outcome = Outcome("done", row.held) if is_held else DONE
        return Decision(StagingUpdated(row), outcome) if row != staged else Decision(None, UNCHANGED)
    if row.is_everywhere:
        return Decision(StagingFinished(ended(row, at)), DONE)
    stage = row.stage + 1
    is_last, named = stage == len(row.plan.stages), state.named_dpus[stage]
    if not is_last and event.named != named:
        reason = f"named: {event.named} must be {named}, the number of DPUs that stage {stage} has"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER))
    since_ms = at.time_ms if named or is_last else row.since_ms
    released = (*row.released, at.offset + 1)
    return Decision(StageReleased(replace(row, stage=stage, released=released, since_ms=since_ms)), DONE)


def _fault_of_observation(staged: StagedChange | None, event: StageObserved) -> str | None:
    if len(event.failed) != len(event.reasons) or len(event.failed) > MAX_FAILED_DPUS:
        return f"failed: {len(event.failed)} DPUs must be as many as reasons, and at most {MAX_FAILED_DPUS}"
    if min(event.total, event.named, event.waiting) < 0:
        return "total: the numbers of DPUs must be 0 or more"
    for reason in event.reasons:
        if fault := check_text("reasons", reason, MAX_REASON):
            return fault
    for dpu in event.failed:
        zone, _, name = dpu.partition("/")
        if fault := check_zone("failed", zone) or check_name("failed", name):
            return fault
    if staged is None or staged.result or (staged.version, staged.stage) != (event.change, event.stage):
        reason = f"change: {event.change} has not just released {event.stage} stages"
        return Fault(reason, Reason.OUT_OF_ORDER)
    return None


def _with_failures(row: StagedChange, event: StageObserved) -> StagedChange:
    """The change with further failed DPUs, and held if they are more than its budget."""
    fresh = dict(zip(event.failed, event.reasons, strict=True))
    new = {dpu: reason for dpu, reason in fresh.items() if dpu not in row.failed and dpu not in row.forgiven}
    failed = dict([*row.failed.items(), *sorted(new.items())][:MAX_FAILED_DPUS])
    size = read_size(row.plan.failure_budget)
    budget = min(size.of(event.total), MAX_FAILED_DPUS - 1) if size is not None else 0
    if row.held or len(failed) <= budget:
        return replace(row, failed=failed)
    return replace(row, failed=failed, held=_held(failed, budget))


def _held(failed: dict[str, str], budget: int) -> str:
    """Why a change is held, in one sentence."""
    shown = [f"{quoted(dpu)} ({reason})" for dpu, reason in [*failed.items()][:_NAMES_SHOWN]]
    more = f" and {len(failed) - len(shown)} more" if len(failed) > len(shown) else ""
    dpus = "1 DPU has" if len(failed) == 1 else f"{len(failed)} DPUs have"
    return f"{dpus} failed, and the failure budget is {budget}: {', '.join(shown)}{more}"


def decide_stages_request(state: FleetState, event: StagesRequested, at: RecordMetadata) -> Decision:
    """Pause, resume or undo the staged change of a policy."""
    if (fault := fault_of_request(event)) is not None:
        return refusal(fault)
    staged = state.staged
    if staged is None or staged.result or staged.policy != event.name:
        reason = f"name: {quoted(event.name)} has no staged change, or it has ended"
        return refusal(Fault(reason, Reason.POLICY_NOT_STAGED, policy=event.name))
    actor = event.envelope.actor or "an operator"
    if staged.undone_by:
        return Decision(None, Outcome("unchanged", f"name: {quoted(event.name)} is being rolled back already"))
    if event.verb == UNDO:
        row = replace(staged, undone_by=actor, undone_version=at.offset + 1, paused_by="", held="", since_ms=at.time_ms)
        if not staged.stage:
            return Decision(StagingUpdated(ended(row, at)), Outcome("done", _returned(staged)))
        return Decision(StagingUndone(row), Outcome("done", _returned(staged)))
    if event.verb == PAUSE:
        row = staged if staged.paused_by else replace(staged, paused_by=actor)
    else:
        forgiven = dict.fromkeys((*staged.forgiven, *staged.failed)) if staged.held else staged.forgiven
        failed = {} if staged.held else staged.failed
        row = replace(staged, paused_by="", held="", forgiven=tuple(forgiven), failed=failed)
    if row == staged:
        said = "paused already" if event.verb == PAUSE else "neither paused nor held"
        return Decision(None, Outcome("unchanged", f"name: the staged change of {quoted(event.name)} is {said}"))
    return Decision(StagingUpdated(row), DONE)


def fault_of_request(event: StagesRequested) -> str | None:
    """The fault of a malformed request."""
    if event.verb not in VERBS:
        return f"verb: {quoted(event.verb)} must be one of {', '.join(VERBS)}"
    return check_zone("name", event.name)


def ended(row: StagedChange, at: RecordMetadata) -> StagedChange:
    """The change after its end."""
    return replace(row, result=UNDONE if row.undone_by else COMPLETE, ended_ms=at.append_ms)


def stage_text(row: StagedChange) -> str:
    """How far a change is."""
    stages = row.plan.stages
    return f"stage {row.stage} of {len(stages)}" + (f" ({stages[row.stage - 1]})" if row.stage else "")


def _returned(row: StagedChange) -> str:
    to = f"version {row.before.version}" if row.before is not None else "no policy of this name"
    return f"all DPUs return to {to}" if row.stage else "no DPU had the change"


def _fault(what: str, staged: StagedChange) -> Fault:
    """Why something must wait for a staged change."""
    reason = f"{what} a change of policy {quoted(staged.policy)} is staged, at {stage_text(staged)}"
    hint = f"; 'dpuplane policies undo {staged.policy}' rolls it back" if staged.is_open else "; it ends soon"
    return Fault(reason + hint, Reason.POLICY_STAGED, policy=staged.policy)
