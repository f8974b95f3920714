"""The status of a Hold: the change that waits, and how it ended.

Fleet forgets most of a hold when it ends. The last status of its object then keeps the details, with the final state.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Any

from eventstore.reasons import Reason
from projections.fleet.membership.effects import hold_key
from projections.fleet.state import LAST_HOLD, FleetState
from projections.fleet.withdrawals.budgets import Hold, reason_of
from projections.fleet.withdrawals.command_outcomes import CommandOutcome
from projections.kubernetes.object_events import ObjectEvent, Regarding
from projections.kubernetes.statements import NO_ACCEPTANCE, Acceptance
from projections.kubernetes.status_body import Condition, Document, Position, StatusBody, shortened, without_stamps
from schemas.resources.hold import HOLD, MAX_NODES, MAX_VERDICTS, HoldStatus

FINISHED_CONDITION = "Finished"
MAX_TEXT = 253
MAX_MESSAGE = 1_024

_FINISHED = {
    "Open": ("WaitsForApproval", "the change waits until two people approve it, or one rejects it"),
    "Approved": ("Approved", "two people approved the change, and it was applied"),
    "Rejected": ("Rejected", "the change was rejected, and the rule tables keep the previous state"),
    "Ended": ("Ended", "nothing waits any more: the nodes came back, or a later command replaced the change"),
}
_UNKNOWN: Document = HoldStatus().model_dump(by_alias=True, exclude_none=True)
"""The content of the status of an unknown hold, with the defaults that the API server fills in."""


def hold_status(
    number: int,
    fleet: FleetState,
    written: Document,
    position: Position,
    *,
    observed_generation: int,
    time_ms: int,
    accepted: Acceptance = NO_ACCEPTANCE,
) -> StatusBody | None:
    """The status of a hold's object. `written` is the present status of the object. The result is None if this replica
    has not folded the hold yet: another replica, which is ahead, made the object."""
    row = fleet.holds.rows.get(hold_key(number)) or fleet.rejected.rows.get(hold_key(number))
    if row is not None:
        content = _content(row, fleet)
    elif number > fleet.clocks.rows.get(LAST_HOLD, 0):
        return None
    else:
        content = _ended(number, fleet, written)
    conditions = [_finished(content["state"]).document(observed_generation), *accepted.conditions]
    content |= {"observedGeneration": observed_generation, "conditions": conditions}
    return StatusBody(content, position, time_ms)


def open_numbers(fleet: FleetState) -> Iterable[int]:
    """The numbers of the open holds, in ascending order."""
    return sorted(row.id for row in fleet.holds.rows.values())


def hold_event(name: str, uid: str, content: Document) -> ObjectEvent:
    """The Event about the state of a hold's object."""
    state = content["state"]
    reason, message = _FINISHED[state]
    if state == "Open":
        message = f"a change of {content['subject']} exceeds the budget {content['budget']}: {message}"
    return ObjectEvent(Regarding(HOLD.api_version, HOLD.name, name, uid), reason, message, is_warning=state == "Open")


def _content(row: Hold, fleet: FleetState) -> dict[str, Any]:
    names = nsmallest(MAX_NODES, fleet.held_names.get(row.id, ()))
    return {
        "hold": row.id,
        "state": "Rejected" if row.rejected_by else "Open",
        "budget": shortened(row.kind, MAX_TEXT),
        "subject": shortened(row.subject, MAX_TEXT),
        "message": shortened(reason_of(row), MAX_MESSAGE),
        "hash": row.hash.hex(),
        "addresses": row.addresses,
        "nodeCount": row.nodes,
        "nodes": [shortened(name, MAX_TEXT) for name in names],
        "requestedBy": shortened(row.requested_by, MAX_TEXT),
        "approvedBy": [shortened(name, MAX_TEXT) for name in row.approvals[:MAX_VERDICTS]],
        "rejectedBy": shortened(row.rejected_by, MAX_TEXT),
    }


def _ended(number: int, fleet: FleetState, written: Document) -> dict[str, Any]:
    """The last content of a hold that fleet no longer has. A final state in `written` stays, because fleet forgets how
    old holds ended."""
    found = {**_UNKNOWN, **without_stamps(written)}
    if found["hold"] != number:
        found = {**_UNKNOWN, "hold": number}
    if found["state"] == "Open":
        found["state"] = _final_state(_outcome_of(number, fleet))
    return found


def _final_state(outcome: CommandOutcome | None) -> str:
    if outcome is None:
        return "Ended"
    if outcome.code == "done":
        return "Approved"
    return "Rejected" if outcome.reason_code == Reason.HOLD_REJECTED else "Ended"


def _outcome_of(number: int, fleet: FleetState) -> CommandOutcome | None:
    """The outcome of a hold, if fleet still stores it. Its key is the number of the hold or, for a hold of members, the
    command. A hold of members without a command has no outcome."""
    rows = fleet.command_outcomes.rows
    return rows.get(hold_key(number)) or next((row for row in rows.values() if row.hold == number), None)


def _finished(state: str) -> Condition:
    return Condition(FINISHED_CONDITION, state != "Open", *_FINISHED[state])
