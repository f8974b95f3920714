"""Decisions about members, policies, holds and freezes, rendered from the change of a record in fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eventstore.folding.fold import Outcome, RecordMetadata
from projections.decisions.items import DecisionItems, items_in_zones, limits_detail, single_item
from projections.fleet.fold import EditWithdrawn, FreezeChanged, ZoneEdited
from projections.fleet.membership import joins
from projections.fleet.policies.edits import Edit
from projections.fleet.staging.decide import ChargedRelease, DpusNamed
from projections.fleet.staging.rows import StagedChange
from projections.fleet.views import EVERY_ZONE
from projections.fleet.withdrawals.budgets import APPROVALS, Hold
from projections.fleet.withdrawals.holds import (
    BudgetChanged,
    EditApplied,
    EditHeld,
    EditRejected,
    EditStaged,
    HoldUpdated,
    MembersRejected,
    MembersReleased,
    addresses_with,
)
from projections.fleet.withdrawals.impact import MemberChange
from projections.staging.course import StagedDpus
from projections.staging.decide import StageReleased, StagingFinished, StagingUndone, StagingUpdated
from schemas.events import Event, HoldApproved, StageDpusNamed


def items(event: Event, change: Any, _outcome: Outcome, at: RecordMetadata) -> Iterator[DecisionItems]:
    match change:
        case joins.MembersAdded(_, given):
            yield from items_in_zones("member_joined", given.names, given.zones)
        case joins.MembersChanged():
            yield from _members_changed(change, at)
        case EditApplied() | EditHeld() | EditWithdrawn() | EditStaged():
            yield from _edit(event, change)
        case DpusNamed(rows):
            yield from (single_item("stage_dpus_named", zone, _named(row, event)) for zone, row in rows.items())
        case StageReleased(row) | ChargedRelease(row) | StagingUpdated(row) | StagingUndone(row) | StagingFinished(row):
            yield _staged(change, row)
        case HoldUpdated(hold):
            yield _hold_changed(event, hold)
        case MembersRejected(hold, names):
            yield single_item("hold_rejected", str(hold.id), {"by": event.envelope.actor})
            yield DecisionItems("member_rejected", names, {"hold": str(hold.id)})
        case EditRejected(hold):
            by = {"by": event.envelope.actor}
            yield single_item("hold_rejected", str(hold.id), by)
            yield single_item(f"{hold.subject}_edit_rejected", edit_subject(hold), by | {"hold": str(hold.id)})
        case MembersReleased(hold, impact, _):
            yield single_item(
                "hold_approved", str(hold), {"by": event.envelope.actor, "approvals": f"{APPROVALS} of {APPROVALS}"}
            )
            yield from (
                single_item("member_released", member_change.name, {"hold": str(hold)})
                for member_change in impact.changes
            )
        case ZoneEdited(zone, limits, edit):
            yield single_item("zone_updated", zone, limits_detail(limits))
            yield from _edit(event, edit)
        case FreezeChanged(zone, freeze):
            yield single_item("writes_frozen" if freeze is not None else "writes_thawed", zone or EVERY_ZONE, {})
        case BudgetChanged(budget, ended_holds, _):
            yield from _approved(event, ended_holds)
            yield single_item(
                "budget_set",
                budget.kind,
                {"permille": str(budget.permille), "min_addresses": str(budget.min_addresses)},
            )


def _members_changed(change: joins.MembersChanged, at: RecordMetadata) -> Iterator[DecisionItems]:
    impact = change.impact
    for number, member_change in enumerate(impact.changes):
        yield _member_changed(member_change, change.hold_by_change.get(number))
    for lost in change.superseded:
        yield single_item("member_superseded", lost.name, {"zone": lost.zone, "created_ms": str(lost.created_ms)})
    for hold in change.holds:
        detail = {"hold": str(hold.id), "budget": hold.kind}
        detail["addresses"] = str(addresses_with(impact, hold, change.hold_by_change))
        yield single_item("members_held", ",".join(hold.zones) or EVERY_ZONE, detail)


def _member_changed(member_change: MemberChange, hold: int | None) -> DecisionItems:
    """The item of one node that joined, left or changed. While a hold delays the change, the previous state of the node
    stays in effect."""
    held = {"hold": str(hold)} if hold is not None else {}
    if member_change.after is None:
        zone = member_change.before.zone if member_change.before is not None else ""
        return single_item(
            "member_left_held" if held else "member_left",
            member_change.name,
            {"zone": zone, "budget": member_change.kind} | held,
        )
    kind = "member_joined" if member_change.before is None or member_change.before.held else "member_changed"
    return single_item(f"{kind}_held" if held else kind, member_change.name, {"zone": member_change.after.zone} | held)


def _named(row: StagedDpus, event: Event) -> dict[str, str]:
    """The stage, and how many DPUs of a zone belong to it."""
    stage = event.stage if isinstance(event, StageDpusNamed) else 0
    return {"stage": str(stage), "dpus": str(sum(each == stage for each in row.stages.values()))}


def _staged(change: Any, row: StagedChange) -> DecisionItems:
    detail = {"stage": str(row.stage), "stages": str(len(row.plan.stages))}
    if isinstance(change, StageReleased | ChargedRelease):
        return single_item("stage_released", row.policy, detail)
    detail |= {key: text for key, text in (("held", row.held), ("paused_by", row.paused_by)) if text}
    detail |= {"failed": str(len(row.failed))} if row.failed else {}
    return single_item(f"change_{row.phase}", row.policy, detail)


def _edit(event: Event, change: EditApplied | EditHeld | EditWithdrawn | EditStaged) -> Iterator[DecisionItems]:
    match change:
        case EditStaged(edit):
            yield from _approved(event, edit.ended_holds)
            yield single_item("policy_staged", edit.proposal.edit.policy, {"stages": ",".join(change.stages.stages)})
        case EditApplied(proposal, _, ended_holds, _):
            yield from _approved(event, ended_holds)
            yield _edited(proposal.edit)
        case EditHeld(hold, ended_holds):
            yield from _ended(ended_holds)
            detail = {"hold": str(hold.id), "addresses": str(hold.addresses)}
            yield single_item(f"{hold.subject}_edit_held", edit_subject(hold), detail)
        case EditWithdrawn(ended_holds):
            yield from _ended(ended_holds)


def edit_subject(hold: Hold) -> str:
    """The subject of a held edit: a policy, a zone or a budget."""
    return hold.policy or hold.zone or hold.kind


def _approved(event: Event, ended_holds: Iterable[int]) -> Iterator[DecisionItems]:
    """The items of holds that ended by their last approval, or because a later command replaced them."""
    if isinstance(event, HoldApproved):
        by = {"by": event.envelope.actor, "approvals": f"{APPROVALS} of {APPROVALS}"}
        yield single_item("hold_approved", str(event.hold), by)
    else:
        yield from _ended(ended_holds)


def _ended(holds: Iterable[int]) -> Iterator[DecisionItems]:
    return (single_item("hold_replaced", str(hold), {}) for hold in holds)


def _edited(edit: Edit) -> DecisionItems:
    if edit.labels_after is not None:
        return single_item("zone_labelled", edit.zone, dict(edit.labels_after))
    return single_item("policy_deleted" if edit.policy_after is None else "policy_set", edit.policy, {})


def _hold_changed(event: Event, hold: Hold) -> DecisionItems:
    by = {"by": event.envelope.actor}
    if not hold.approvals:
        return single_item("hold_asked_anew", str(hold.id), by | {"addresses": str(hold.addresses)})
    return single_item("hold_approved", str(hold.id), by | {"approvals": f"{len(hold.approvals)} of {APPROVALS}"})
