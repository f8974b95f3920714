"""Notes on leaves of nodes that have left their zone, but are still in the rule tables."""

from __future__ import annotations

from projections.field_checks import quoted
from projections.fleet.state import FleetState
from projections.fleet.views import hold_of, is_rejected
from schemas.api import dpuplane_pb2 as pb


def note_holds(answer: pb.CommandResult, fleet: FleetState) -> None:
    """Add a note to each `unchanged` item whose node has left its zone, but is kept in the rule tables by a hold.

    The outcome and the reason of a leave follow from the zone's log alone, so every caller gets the same outcome and
    reason. The note, however, depends on the present state of fleet.
    """
    for item in answer.items:
        member = fleet.members.rows.get(item.name)
        if item.outcome != pb.OUTCOME_UNCHANGED or member is None or not member.held:
            continue
        hold = hold_of(fleet, item.name)
        if is_rejected(fleet, hold):
            kept = f"its leave of zone {quoted(member.zone)} was rejected with hold {hold}, so the rule tables keep it"
            item.note = f"{kept}; to remove it, join it and remove it again"
        else:
            item.note = f"it left zone {quoted(member.zone)} earlier, and hold {hold} keeps it in the rule tables"
