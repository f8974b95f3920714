"""Decisions about the present staged change of a policy, by the rules of all staged changes (`projections.staging`)."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.fleet.staging.rows import StagedChange
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import BudgetKind
from projections.rules.policies import matches
from projections.staging.course import StagedDpus, stage_text
from projections.staging.decide import (
    StageReleased,
    StagingFinished,
    StagingUndone,
    StagingUpdated,
    fault_of_naming,
    fault_of_observation,
    fault_of_request,
    name_dpus,
    observed,
    requested,
)
from projections.staging.plan import label_of
from schemas.events import StageDpusNamed, StageObserved, StagesRequested


class DpusNamed(NamedTuple):
    """DPUs of the next stage, with those that their zones had already."""

    rows: dict[str, StagedDpus]


class ChargedRelease(NamedTuple):
    """The first or the last stage is released: the fold gets it in place of a `StageReleased`, which it gets for the
    stages between. `charged` is what counts against the budgets: budget, id of a list, and number of addresses."""

    row: StagedChange
    charged: tuple[tuple[BudgetKind, str, int], ...]


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
    if (fault := fault_of_naming(staged, event)) is not None:
        return refusal(fault)
    assert staged is not None, "DPUs are named for a present change"
    wanted = label_of(staged.plan.stages[event.stage - 1])
    for zone in dict.fromkeys(event.zones):
        labels = state.zone(zone).labels
        if not staged.concerns(labels) or (wanted is not None and not matches(wanted, labels)):
            return refusal(Fault(f"zones: {quoted(zone)} is not in stage {event.stage}", Reason.OUT_OF_ORDER))
    rows = name_dpus(staged, event, state.staged_dpus.rows.get, state.named_dpus.total())
    if isinstance(rows, Fault):
        return refusal(rows)
    return Decision(DpusNamed(rows), DONE) if rows else Decision(None, UNCHANGED)


def decide_observation(state: FleetState, event: StageObserved, at: RecordMetadata) -> Decision:
    """Release the next stage, hold the change, or end it, if what a driver saw allows it."""
    staged = state.staged
    if (fault := fault_of_observation(staged, event)) is not None:
        return refusal(fault)
    assert staged is not None, "a present change is observed"
    match observed(staged, event, state.named_dpus.__getitem__, at):
        case None:
            return Decision(None, UNCHANGED)
        case Fault() as fault:
            return refusal(fault)
        case StageReleased() | StagingFinished() as change:
            return Decision(change, DONE)
        case StagingUpdated(row) as change:
            is_held = row.held and not staged.held
            return Decision(change, Outcome("done", row.held) if is_held else DONE)


def decide_stages_request(state: FleetState, event: StagesRequested, at: RecordMetadata) -> Decision:
    """Pause, resume or undo the staged change of a policy."""
    if (fault := fault_of_request(event)) is not None:
        return refusal(fault)
    staged = state.staged
    if staged is None or staged.result or staged.policy != event.name:
        reason = f"name: {quoted(event.name)} has no staged change, or it has ended"
        return refusal(Fault(reason, Reason.POLICY_NOT_STAGED, policy=event.name))
    match requested(staged, event, at):
        case Outcome() as outcome:
            return Decision(None, outcome)
        case StagingUndone(row):
            undone = replace(row, undone_version=at.offset + 1)
            return Decision(StagingUndone(undone), Outcome("done", _returned(staged)))
        case StagingUpdated(row) if row.result:
            undone = replace(row, undone_version=at.offset + 1)
            return Decision(StagingUpdated(undone), Outcome("done", _returned(staged)))
        case StagingUpdated() as change:
            return Decision(change, DONE)


def _returned(row: StagedChange) -> str:
    to = f"version {row.before.version}" if row.before is not None else "no policy of this name"
    return f"all DPUs return to {to}" if row.stage else "no DPU had the change"


def _fault(what: str, staged: StagedChange) -> Fault:
    """Why something must wait for a staged change."""
    reason = f"{what} a change of policy {quoted(staged.policy)} is staged, at {stage_text(staged)}"
    hint = f"; 'dpuplane policies undo {staged.policy}' rolls it back" if staged.is_open else "; it ends soon"
    return Fault(reason + hint, Reason.POLICY_STAGED, policy=staged.policy)
