"""Holds: changes over their budget, which wait for approval, and how a hold ends.

A hold of members ends when two principals approve it, or when all of its nodes have come back. A hold of a looser
budget ends when two principals approve it, one rejects it, or the budget is set anew. A hold of an edit (of a policy,
or of a zone's labels) ends when two principals approve it, one rejects it, or another edit of the same subject replaces
it. An approved edit applies to the fleet's state at that time. The edit may then change more verdicts than the
approvers saw, or verdicts in other zones. If these unseen changes exceed a budget, the edit needs new approvals. An
approval quotes the hash of the change that the approver saw. The person who requested an edit may not approve it: two
others must. A person with certificates of several roles counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple, TypedDict

from msgspec.structs import replace

from eventstore.folding.fold import DONE, Decision, Outcome, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.fleet.membership.effects import hold_key
from projections.fleet.membership.rows import Cause
from projections.fleet.policies.edits import Edit, EditImpact, ListPair, Proposal, edit_impact, propose
from projections.fleet.policies.fleet_zones import FleetZone
from projections.fleet.staging.decide import fault_of_another, fault_of_edit
from projections.fleet.state import ANY_ZONE, LAST_HOLD, FleetState
from projections.fleet.withdrawals.budgets import (
    ALLOWED_BY_CHANGE,
    ALLOWED_BY_JOIN,
    APPROVALS,
    BUDGET_WINDOW_MS,
    DENIAL_KINDS,
    DENIED_BY_CHANGE,
    DENIED_BY_LEAVE,
    MAX_SHOWN_ZONES,
    SUBJECT_MEMBERS,
    SUBJECT_POLICY,
    SUBJECT_ZONE,
    Budget,
    BudgetKind,
    Hold,
    hash_of,
    key_of,
    reason_of,
)
from projections.fleet.withdrawals.impact import Impact, MemberChange, evaluate
from projections.fleet.withdrawals.principals import person
from projections.staging.plan import StagePlan
from schemas.events import Envelope, HoldApproved, HoldRejected

MAX_SHOWN_REASONS = 10
"""Maximum number of different reasons in a hold's text. Each record of the hold's command may add a reason."""

_LATER = "; a later part of the command: "
_OTHERS = "others"


class EditApplied(NamedTuple):
    """An edit is applied: its count against the budgets, and the holds that it ends."""

    proposal: Proposal
    charged: EditImpact
    ended_holds: tuple[int, ...]
    approved_by: tuple[str, ...] = ()


class EditHeld(NamedTuple):
    """An edit waits for approval. Waiting edits of the same policy or zone end, because this one replaces them. With
    `stages`, it will take effect in stages."""

    hold: Hold
    ended_holds: tuple[int, ...]
    stages: StagePlan | None = None


class EditStaged(NamedTuple):
    """An edit of a policy begins to take effect in stages."""

    edit: EditApplied
    stages: StagePlan
    requested_by: str
    approved: Hold | None = None
    """The hold that was approved; None if the change is within the budgets."""


class BudgetChanged(NamedTuple):
    """A budget is set, and pending edits of it end."""

    budget: Budget
    ended_holds: tuple[int, ...]
    approved_by: tuple[str, ...] = ()


class HoldUpdated(NamedTuple):
    """A hold gets a new row: it was approved once, or needs new approvals."""

    hold: Hold


class MembersRejected(NamedTuple):
    """A change of members is rejected: the previous states of its nodes stay reachable, the new ones stay without
    effect."""

    hold: Hold
    names: tuple[str, ...]


class EditRejected(NamedTuple):
    """An edit that waited is rejected."""

    hold: Hold


class MembersReleased(NamedTuple):
    """The change of members behind a hold is applied."""

    hold: int
    impact: Impact
    approved_by: tuple[str, ...]


def member_holds(
    state: FleetState, impact: Impact, causes: Mapping[str, Cause], actor: str, at: RecordMetadata
) -> tuple[tuple[Hold, ...], dict[int, int]]:
    """The holds of the held changes, one per command that caused them, and the id of the hold of each change, by the
    index of the change.

    All nodes of a command share one hold, even if they are in several records, of one zones partition or of several.
    When the hold grows, its approvals are void. The same command id from another actor makes another hold: otherwise an
    actor could approve their own change in the name of another. Nodes without a command share the hold of their record,
    with `actor` as the requester.
    """
    if not impact.held:
        return (), {}  # the common case; a scan of open holds may cover thousands
    by_cause: dict[Cause, list[int]] = {}
    for index in sorted(impact.held):
        by_cause.setdefault(causes.get(impact.changes[index].name, Cause("", actor)), []).append(index)
    of_members = (hold for hold in state.holds.rows.values() if hold.subject == SUBJECT_MEMBERS)
    open_holds = {Cause(hold.command_id, hold.requested_by): hold for hold in of_members}
    hold_by_change: dict[int, int] = {}
    holds, number = list[Hold](), state.clocks.rows.get(LAST_HOLD, 0)
    for cause, indices in by_cause.items():
        earlier = open_holds.get(cause) if cause.command_id else None
        hold = _hold_of(state, impact, indices, cause, at)
        if earlier is None:
            number += 1
            hold = replace(hold, id=number)
        else:
            hold = _grown(earlier, hold)
        holds.append(hold)
        hold_by_change |= dict.fromkeys(indices, hold.id)
    return tuple(holds), hold_by_change


def _grown(earlier: Hold, later: Hold) -> Hold:
    """An open hold, extended by the hold of a later record of the same command: it has the zones and reasons of both,
    and no approvals."""
    reasons = [*dict.fromkeys((*earlier.reason.split(_LATER), later.reason))]
    if len(reasons) > MAX_SHOWN_REASONS:
        reasons[MAX_SHOWN_REASONS:] = [_OTHERS]
    kind = _named({earlier.kind, later.kind})
    zones = tuple(nsmallest(MAX_SHOWN_ZONES, {*earlier.zones, *later.zones}))
    return replace(earlier, kind=kind, zones=zones, reason=_LATER.join(reasons), approvals=())


def _hold_of(state: FleetState, impact: Impact, indices: Sequence[int], cause: Cause, at: RecordMetadata) -> Hold:
    befores = [impact.changes[index].before for index in indices]
    earlier = [state.holds.rows.get(hold_key(before.delayed_by)) for before in befores if before is not None]
    kind = _named({kind for kind, _ in impact.exceeded} or {hold.kind for hold in earlier if hold is not None})
    count, number = max(
        ((count, number) for (of, number), count in impact.exceeded.items() if of == kind), default=(0, 0)
    )
    zones: Iterable[str]
    if count:
        addresses = sum(_addresses_of(impact.changes[index]) for index in indices)
        together = f", as part of {count}" if count > addresses else ""
        reason = _over(kind, together + _of_late(state, kind, number, at)) + "; the rule tables keep the previous state"
        zones = state.zones_with({list_number for _, list_number in impact.exceeded})
    else:
        reason = "of nodes whose last change waits for approval; the rule tables keep the previous state"
        zones = {row.zone for index in indices for row in impact.changes[index][2:4] if row is not None}
    return Hold(
        id=0,
        kind=kind,
        subject=SUBJECT_MEMBERS,
        reason=reason,
        addresses=0,
        nodes=0,
        zones=tuple(nsmallest(MAX_SHOWN_ZONES, zones)),
        hash=bytes(16),
        requested_by=cause.actor,
        since_ms=at.append_ms,
        command_id=cause.command_id,
    )


def held_outcome(impact: Impact, hold: Hold, hold_by_change: Mapping[int, int]) -> Outcome:
    """The outcome of a record of members that opened this hold, or made it grow."""
    return Outcome(
        "held",
        reason_of(replace(hold, addresses=addresses_with(impact, hold, hold_by_change))),
        result={"hold": hold.id},
    )


def addresses_with(impact: Impact, hold: Hold, hold_by_change: Mapping[int, int]) -> int:
    """The number of addresses of a hold, after a record with this impact has added its addresses to the hold."""
    added = (_addresses_of(impact.changes[index]) for index, held in hold_by_change.items() if held == hold.id)
    return hold.addresses + sum(added)


def _addresses_of(change: MemberChange) -> int:
    """The number of addresses that a hold counts for this change: the number of removed addresses or of new ones,
    whichever is larger."""
    goes = sum(bool(part.address4) + bool(part.address6) for part in change.removed)
    comes = (
        bool(change.after.address4) + bool(change.after.address6)
        if change.after is not None and change.needs_slot
        else 0
    )
    return max(goes, comes)


def _over(kind: BudgetKind, more: str) -> str:
    return f"would be {_turned(kind)} at once{more}, over the {kind} budget"


def _of_late(state: FleetState, kind: BudgetKind, number: int, at: RecordMetadata) -> str:
    """The part of a reason that counts the earlier changes of a list in the window. The count explains why even a small
    change may exceed the budget."""
    spent = state.window(kind, number).spent(at.time_ms)
    return f", after {spent} in the last {BUDGET_WINDOW_MS // 60_000} minutes" if spent else ""


def _named(kinds: Collection[str]) -> BudgetKind:
    """The budget that a hold is named after: of these budgets, the first in the order denied-by-change,
    denied-by-leave, allowed-by-change, allowed-by-join."""
    first: tuple[BudgetKind, ...] = (DENIED_BY_CHANGE, DENIED_BY_LEAVE, ALLOWED_BY_CHANGE, ALLOWED_BY_JOIN)
    return next(kind for kind in first if kind in kinds)


def _turned(kind: BudgetKind) -> str:
    return "denied" if kind in DENIAL_KINDS else "allowed"


def decide_edit(
    state: FleetState, edit: Edit, envelope: Envelope, at: RecordMetadata, stages: StagePlan | None = None
) -> tuple[EditApplied | EditHeld, Outcome]:
    """Apply an edit within the budget; hold one that is over it, with the stages that it will have.

    A repeated edit leaves its pending hold unchanged: a client that repeats its edit must not void the approvals.
    """
    proposal = propose(state, edit, at.offset + 1)
    found = edit_impact(state, proposal)
    ended_holds = tuple(_of_the_same(state, edit))
    over = over_budget(state, found, at)
    if not over:
        return EditApplied(proposal, found, ended_holds), DONE
    for waiting in (state.holds.rows[hold_key(hold)] for hold in ended_holds):
        is_same = _has_same_content(waiting, edit) and state.stage_plans.rows.get(hold_key(waiting.id)) == stages
        if is_same and not over_budget(state, unseen_by_approvers(state, waiting, proposal, found), at):
            return EditHeld(waiting, (), stages), Outcome("held", waiting.reason, result={"hold": waiting.id})
    asked = _approval_request(state, proposal, over, at)
    kind, addresses = asked["kind"], asked["addresses"]
    number = next(pair[0] for (of, pair), count in over.items() if (of, count) == (kind, addresses))
    what = f"{addresses} addresses {_over(kind, _of_late(state, kind, number, at))}"
    hold = Hold(
        id=state.clocks.rows.get(LAST_HOLD, 0) + 1,
        subject=SUBJECT_POLICY if edit.policy else SUBJECT_ZONE,
        reason=f"{_edit_prefix(edit)}: {what}; it waits for approval",
        nodes=0,
        requested_by=envelope.actor,
        since_ms=at.append_ms,
        policy=edit.policy,
        policy_after=edit.policy_after,
        zone=edit.zone,
        labels_after=edit.labels_after,
        command_id=envelope.command_id,
        **asked,
    )
    return EditHeld(hold, ended_holds, stages), Outcome("held", hold.reason, result={"hold": hold.id})


def over_budget(state: FleetState, found: EditImpact, at: RecordMetadata) -> EditImpact:
    """The part of an edit's impact that exceeds the budgets now."""
    return {
        (kind, pair): count
        for (kind, pair), count in found.items()
        if count and state.exceeds(kind, pair[0], count, at.time_ms)
    }


def excess_of(state: FleetState, over: EditImpact, at: RecordMetadata) -> str:
    """Why an edit with this impact over the budgets cannot take effect, in one sentence."""
    kind = _named({kind for kind, _ in over})
    count, pair = max((count, pair) for (of, pair), count in over.items() if of == kind)
    return f"{count} addresses {_over(kind, _of_late(state, kind, pair[0], at))}"


class _ApprovalRequest(TypedDict):
    """The data of an edit that approvers see and confirm."""

    kind: BudgetKind
    addresses: int
    zones: tuple[str, ...]
    hash: bytes
    asked_offset: int
    shown_counts: dict[str, int]


def _approval_request(state: FleetState, proposal: Proposal, over: EditImpact, at: RecordMetadata) -> _ApprovalRequest:
    by_move = _zones_by_move(state, proposal)
    kind = _named({kind for kind, _ in over})
    concerned = sorted({name for _, pair in over for name in by_move[pair] if name != ANY_ZONE})
    return _ApprovalRequest(
        kind=kind,
        addresses=max(count for (of, _), count in over.items() if of == kind),
        zones=tuple(concerned[:MAX_SHOWN_ZONES]),
        hash=hash_of("edit", at.offset, *proposal.edit),
        asked_offset=at.offset,
        shown_counts={_key(state, kind, by_move[pair], at.offset): count for (kind, pair), count in over.items()},
    )


def _key(state: FleetState, kind: BudgetKind, zones: Collection[str], asked: int) -> str:
    """The key of one of the counts that approvers see: the budget, and the zones with the same list before the edit and
    the same list after it.

    ANY_ZONE stands for all zones that fleet does not know. If it is among `zones`, the key omits the zones that fleet
    learned of after the edit was requested at offset `asked`. So the key stays the same when fleet learns of new zones.
    Otherwise an edit of all zones could never be approved in a growing fleet, which gets new zones all the time.
    """
    if ANY_ZONE in zones:
        zones = [name for name in zones if name == ANY_ZONE or not _was_unknown(state.zones.rows.get(name), asked)]
    return f"{kind}/{key_of(zones)}"


def _was_unknown(zone: FleetZone | None, asked: int) -> bool:
    """Whether the zone was unknown to fleet when the edit was requested, at offset `asked`. A zone without labels
    counts as unknown too, unless its labels were edited after that offset."""
    return zone is not None and (zone.since_version > asked or (not zone.labels and zone.labels_version <= asked))


def _zones_by_move(state: FleetState, proposal: Proposal) -> dict[ListPair, list[str]]:
    zones: dict[ListPair, dict[str, None]] = {}
    for name, pair in proposal.by_zone(state.zones):
        zones.setdefault(pair, {})[name] = None
    return {pair: [*names] for pair, names in zones.items()}


def _of_the_same(state: FleetState, edit: Edit) -> Iterable[int]:
    """Holds of earlier edits of the same subject."""
    for hold in ordered(state):
        if hold.subject in (SUBJECT_POLICY, SUBJECT_ZONE) and (hold.policy, hold.zone) == (edit.policy, edit.zone):
            yield hold.id


def ordered(state: FleetState) -> list[Hold]:
    """All holds, oldest first."""
    return sorted(state.holds.rows.values(), key=lambda hold: hold.id)


def holds_of_edit(state: FleetState, *, policy: str = "", zone: str = ANY_ZONE) -> tuple[int, ...]:
    """Holds of edits of a policy, or of a zone's labels."""
    return tuple(_of_the_same(state, Edit(policy=policy, zone=zone)))


def _open(state: FleetState, number: int) -> Hold | str:
    """An open hold, or one sentence that says why it is not open."""
    key = hold_key(number)
    rejected = state.rejected.rows.get(key)
    if rejected is not None:
        reason = f"hold: {number} was rejected by {quoted(rejected.rejected_by)} and can no longer be approved"
        return Fault(reason, Reason.HOLD_REJECTED, hold=number, rejected_by=rejected.rejected_by)
    hold = state.holds.rows.get(key)
    return (
        hold if hold is not None else Fault(f"hold: {number} is not an open hold", Reason.HOLD_NOT_FOUND, hold=number)
    )


def decide_approval(state: FleetState, event: HoldApproved, at: RecordMetadata) -> Decision:
    hold = _open(state, event.hold)
    actor = event.envelope.actor
    if isinstance(hold, str):
        return refusal(hold)
    if event.hold_hash != hold.hash:
        said = event.hold_hash[: len(hold.hash) + 1].hex()  # one byte more shows that it is too long
        reason = f"hash: {said} must be the current hash of the hold, {hold.hash.hex()}"
        return refusal(Fault(reason, Reason.HOLD_CHANGED, hold=hold.id, hash=hold.hash.hex()))
    if person(actor) == person(hold.requested_by):
        reason = f"principal: {quoted(actor)} requested this change, so other principals must approve it"
        return refusal(Fault(reason, Reason.APPROVER_IS_REQUESTER, hold=hold.id, principal=actor))
    approvals = tuple({person(approver): approver for approver in (*hold.approvals, actor)}.values())
    if len(approvals) < APPROVALS:
        reason = f"hold {hold.id} has {len(approvals)} of {APPROVALS} approvals"
        if len(approvals) == len(hold.approvals):
            return Decision(None, Outcome("unchanged", f"{reason}, including yours"))
        return Decision(HoldUpdated(replace(hold, approvals=approvals)), Outcome("done", reason))
    if hold.subject == SUBJECT_MEMBERS:
        changes = [_release(state, name, hold.id) for name in sorted(state.held_names[hold.id])]
        return Decision(MembersReleased(hold.id, evaluate(state, changes, at.time_ms, approved=True), approvals), DONE)
    if hold.budget_after is not None:
        return Decision(BudgetChanged(hold.budget_after, (hold.id,), approvals), DONE)
    return _decide_approved_edit(state, hold, approvals, at)


def _decide_approved_edit(state: FleetState, hold: Hold, approvals: tuple[str, ...], at: RecordMetadata) -> Decision:
    """Apply an approved edit, or ask for new approvals if its unseen verdict changes exceed a budget.

    Approvers saw one count per group of zones. If verdicts would now change in another group of zones, the whole count
    of that group is unseen.
    """
    edit = Edit(hold.policy, hold.policy_after, hold.zone, hold.labels_after)
    stages = state.stage_plans.rows.get(hold_key(hold.id))
    fault = fault_of_edit(state, policy=hold.policy, zone=hold.zone)
    if stages is not None:
        fault = fault or fault_of_another(state)
    if fault is not None:
        return refusal(fault)
    proposal = propose(state, edit, at.offset + 1)
    found = edit_impact(state, proposal)
    unseen = unseen_by_approvers(state, hold, proposal, found)
    if not over_budget(state, unseen, at):
        applied = EditApplied(proposal, unseen, (hold.id,), approvals)
        return Decision(applied if stages is None else EditStaged(applied, stages, hold.requested_by, hold), DONE)
    asked = _approval_request(state, proposal, over_budget(state, found, at), at)
    reason = (
        f"{_edit_prefix(edit)}: {asked['addresses']} addresses would be {_turned(asked['kind'])} at once now, but"
        " approvers were shown fewer, or other zones; check its zones and approve it again"
    )
    return Decision(
        HoldUpdated(replace(hold, reason=reason, approvals=(), **asked)),
        Outcome("held", reason, result={"hold": hold.id}),
    )


def _edit_prefix(edit: Edit) -> str:
    """The beginning of a sentence about an edit."""
    return f"policy: {edit.policy!r}" if edit.policy else f"zone: labels of {edit.zone!r}"


def unseen_by_approvers(state: FleetState, hold: Hold, proposal: Proposal, found: EditImpact) -> EditImpact:
    """The verdict changes that an edit would cause now, minus those that approvers were shown at `asked_offset`."""
    zones = _zones_by_move(state, proposal)
    return {
        (kind, pair): max(0, count - hold.shown_counts.get(_key(state, kind, zones[pair], hold.asked_offset), 0))
        for (kind, pair), count in found.items()
    }


def _has_same_content(hold: Hold, edit: Edit) -> bool:
    """Whether an edit has the same content as the pending one of the same subject."""
    waits, asked = hold.policy_after, edit.policy_after
    if waits is None or asked is None:
        return waits is asked and hold.labels_after == edit.labels_after
    return waits.content() == asked.content()


def _release(state: FleetState, name: str, hold: int) -> MemberChange:
    """Drop the states of a node that a hold retains, and make the state that it withholds effective."""
    before, parts = state.members.rows[name], state.retained_states(name)
    removed = tuple(part for part in parts if part.hold == hold)
    untouched = tuple(part for part in parts if part.hold != hold)
    return MemberChange(
        name,
        DENIED_BY_CHANGE,
        before,
        None if before.held else before,
        removed,
        untouched,
        needs_slot=before.delayed_by == hold,
    )


def decide_rejection(state: FleetState, event: HoldRejected) -> Decision:
    hold = _open(state, event.hold)
    if isinstance(hold, str):
        return refusal(hold)
    rejected = replace(hold, approvals=(), rejected_by=event.envelope.actor)
    if hold.subject == SUBJECT_MEMBERS:
        return Decision(MembersRejected(rejected, tuple(sorted(state.held_names[hold.id]))), DONE)
    return Decision(EditRejected(rejected), DONE)
