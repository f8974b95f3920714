"""Edits of budgets: a tighter budget applies at once, and a looser one waits for approval."""

from __future__ import annotations

from eventstore.folding.fold import DONE, UNCHANGED, Decision, Outcome, RecordMetadata, refusal
from projections.fleet.state import LAST_HOLD, FleetState
from projections.fleet.withdrawals.budgets import SUBJECT_BUDGET, Budget, Hold, fault_of_budget, hash_of
from projections.fleet.withdrawals.holds import BudgetChanged, EditHeld, ordered
from schemas.events import BudgetSet


def decide_budget(state: FleetState, event: BudgetSet, at: RecordMetadata) -> Decision:
    """Apply a tighter budget at once; hold one that is looser in any way.

    A budget decides which changes pass without a second person, so loosening it needs as many people as releasing a
    hold. While it waits, the present budget counts.
    """
    fault = fault_of_budget(event)
    if fault is not None:
        return refusal(fault)
    now, budget = state.budgets.rows[event.kind], Budget(event.kind, event.permille, event.min_addresses)
    waiting = [hold for hold in ordered(state) if hold.subject == SUBJECT_BUDGET and hold.kind == event.kind]
    ended_holds = tuple(hold.id for hold in waiting)
    if budget == now and not waiting:
        return Decision(None, UNCHANGED)
    if not budget.is_looser(now):
        return Decision(BudgetChanged(budget, ended_holds), DONE)
    for hold in waiting:
        if hold.budget_after == budget:
            return Decision(EditHeld(hold, ()), Outcome("held", hold.reason, result={"hold": hold.id}))
    reason = (
        f"budget: {budget.kind} would be looser with {budget.permille} per mille and at least {budget.min_addresses}"
        f" than with {now.permille} and {now.min_addresses}; it waits for approval"
    )
    hold = Hold(
        id=state.clocks.rows.get(LAST_HOLD, 0) + 1,
        kind=budget.kind,
        subject=SUBJECT_BUDGET,
        reason=reason,
        addresses=0,
        nodes=0,
        zones=(),
        hash=hash_of("budget", at.offset, budget),
        requested_by=event.envelope.actor,
        since_ms=at.append_ms,
        budget_after=budget,
        command_id=event.envelope.command_id,
    )
    return Decision(EditHeld(hold, ended_holds), Outcome("held", reason, result={"hold": hold.id}))
