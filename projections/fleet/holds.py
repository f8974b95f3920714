"""Holds: what was over its budget and waits, and what becomes of it.

A hold of members ends when two principals approve it, or when all that it keeps has come back. A hold of a policy or of
a zone's labels ends when two principals approve it (then the edit is made as it stands, to whatever the fleet is then;
where that takes away more than they saw, or in other zones, by more than the budget, they are asked anew), when one
rejects it, or when another edit of the same thing takes its place. An approval quotes the hash of what was seen.
Whoever asked for an edit may not approve it: it takes two others. Who has certificates of several roles counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest
from typing import NamedTuple, TypedDict

from msgspec.structs import replace

from eventstore.folding.fold import DONE, At, Decision, Outcome, refusal
from projections.fleet.effects import hold_key
from projections.fleet.moves import Move, Weighed, weigh
from projections.fleet.principals import person
from projections.fleet.replanning import Edit, Pair, Proposal, losses, propose
from projections.fleet.state import ANY_ZONE, FleetState
from projections.fleet.withdrawals import APPROVALS, KINDS, MAX_SHOWN_ZONES, Hold, Kind, hash_of, key_of
from projections.fleet.zone_rows import ZoneInfo
from projections.names import shown
from schemas.events import HoldApproved, HoldRejected


class Edited(NamedTuple):
    """An edit is made: what it takes away, and the holds that it ends."""

    proposal: Proposal
    lost: Mapping[Pair, int]
    ends: tuple[int, ...]


class EditHeld(NamedTuple):
    """An edit waits, instead of older ones of the same thing."""

    hold: Hold
    ends: tuple[int, ...]


class HoldChanged(NamedTuple):
    """A hold has a new row: approved once, or rejected."""

    hold: Hold


class HoldDropped(NamedTuple):
    """An edit that waited will not be made."""

    hold: int


class Released(NamedTuple):
    """What a hold of members kept may go."""

    hold: int
    weighed: Weighed


def member_hold(state: FleetState, weighed: Weighed, actor: str, at: At) -> Hold | None:
    """The hold that weighed moves need, if anything of them is held that was not held before."""
    fresh = any(part.hold < 0 and part.slot in weighed.retained for move in weighed.moves for part in move.outs)
    if not fresh and not weighed.withheld:
        return None
    kind = next(kind for kind in KINDS if any(found == kind for found, _ in weighed.held))
    lists = {number for _, number in weighed.held}
    zones = nsmallest(MAX_SHOWN_ZONES, state.zones_with(lists))
    count = max(weighed.held.values())
    reason = f"nodes: {count} addresses would be withdrawn at once, over the {kind} budget; what was allowed stays"
    return Hold(
        id=at.offset,
        kind=kind,
        subject="members",
        reason=reason,
        addresses=count,
        nodes=0,
        zones=tuple(zones),
        hash=bytes(16),
        requested_by=actor,
        since_ms=at.append_ms,
    )


def decide_edit(state: FleetState, edit: Edit, actor: str, at: At) -> tuple[Edited | EditHeld, Outcome]:
    """Make an edit within the budget; hold one that is over it.

    One that waits already goes on waiting: who keeps stating what they want must not take back approvals of it.
    """
    proposal = propose(state, edit, at.offset + 1)
    lost = losses(state, proposal)
    ends = tuple(_of_the_same(state, edit))
    over = _over_budget(state, lost, at)
    if not over:
        return Edited(proposal, lost, ends), DONE
    for waiting in (state.holds.rows[hold_key(hold)] for hold in ends):
        if _says_the_same(waiting, edit) and not _over_budget(state, _unseen(state, waiting, proposal, lost), at):
            return EditHeld(waiting, ()), Outcome("held", waiting.reason, hold=waiting.id)
    most = max(over.values())
    hold = Hold(
        id=at.offset,
        kind="inferred",
        subject="policy" if edit.policy else "zone",
        reason=f"{_said(edit)} would withdraw {most} addresses at once, over the inferred budget; it waits",
        nodes=0,
        requested_by=actor,
        since_ms=at.append_ms,
        policy=edit.policy,
        policy_after=edit.policy_after,
        zone=edit.zone,
        labels_after=edit.labels_after,
        **_asked(state, proposal, over, at),
    )
    return EditHeld(hold, ends), Outcome("held", hold.reason, hold=hold.id)


def _over_budget(state: FleetState, lost: Mapping[Pair, int], at: At) -> dict[Pair, int]:
    """The moves between lists that would withdraw more than may be now."""
    return {
        pair: count for pair, count in lost.items() if count and state.exceeds("inferred", pair[0], count, at.time_ms)
    }


class _Asked(TypedDict):
    """What the approvers of an edit are shown and say yes to."""

    addresses: int
    zones: tuple[str, ...]
    hash: bytes
    asked: int
    seen: dict[str, int]


def _asked(state: FleetState, proposal: Proposal, over: Mapping[Pair, int], at: At) -> _Asked:
    moved = {pair: zones for pair, zones in _zones_by_move(state, proposal).items() if pair in over}
    lose = sorted(name for zones in moved.values() for name in zones if name != ANY_ZONE)
    return _Asked(
        addresses=max(over.values()),
        zones=tuple(lose[:MAX_SHOWN_ZONES]),
        hash=hash_of("edit", at.offset, *proposal.edit),
        asked=at.offset,
        seen={_key(state, zones, at.offset): over[pair] for pair, zones in moved.items()},
    )


def _key(state: FleetState, zones: Collection[str], asked: int) -> str:
    """Stands for the zones that would lose something together.

    What was seen of zones that fleet had heard nothing of was seen of whichever of them it hears of since: a fleet that
    grows has a new one every so often, and nothing that concerns them all could ever be approved.
    """
    if ANY_ZONE not in zones:
        return key_of(zones)
    return key_of(name for name in zones if name == ANY_ZONE or not _is_any(state.zones.rows.get(name), asked))


def _is_any(zone: ZoneInfo | None, asked: int) -> bool:
    """Whether fleet has heard of a zone only since an edit was asked for, or nothing was said of it then or since: it
    has no labels, and lost none."""
    return zone is not None and (zone.heard > asked or (not zone.labels and zone.labelled <= asked))


def _zones_by_move(state: FleetState, proposal: Proposal) -> dict[Pair, list[str]]:
    zones: dict[Pair, list[str]] = {}
    for name, pair in proposal.by_zone(state.zones):
        zones.setdefault(pair, []).append(name)
    return zones


def _of_the_same(state: FleetState, edit: Edit) -> Iterable[int]:
    """Holds of earlier edits of the same thing."""
    for hold in sorted(state.holds.rows.values(), key=lambda hold: hold.id):
        if hold.subject != "members" and (hold.policy, hold.zone) == (edit.policy, edit.zone):
            yield hold.id


def waiting_for(state: FleetState, *, policy: str = "", zone: str = ANY_ZONE) -> tuple[int, ...]:
    """Holds of edits of a policy, or of a zone's labels."""
    return tuple(_of_the_same(state, Edit(policy=policy, zone=zone)))


def decide_approval(state: FleetState, event: HoldApproved, at: At) -> Decision:
    hold = state.holds.rows.get(hold_key(event.hold))
    actor = event.envelope.actor
    if hold is None:
        return refusal(f"hold: {event.hold} is not a hold that is open")
    if event.hold_hash != hold.hash:
        said = event.hold_hash[: len(hold.hash) + 1].hex()  # enough to tell that it is too long
        return refusal(f"hash: {said} must be that of the hold now, {hold.hash.hex()}")
    if hold.subject != "members" and person(actor) == person(hold.requested_by):
        return refusal(f"principal: {shown(actor)} asked for this change, so others must approve it")
    approvals = tuple({person(approver): approver for approver in (*hold.approvals, actor)}.values())
    if len(approvals) < APPROVALS:
        reason = f"hold {hold.id} has {len(approvals)} of {APPROVALS} approvals"
        return Decision(HoldChanged(replace(hold, approvals=approvals, rejected_by="")), Outcome("done", reason))
    if hold.subject == "members":
        moves = [_release(state, name, hold.id) for name in sorted(state.held_names[hold.id])]
        return Decision(Released(hold.id, weigh(state, moves, at.time_ms, approved=True)), DONE)
    return _decide_approved_edit(state, hold, at)


def _decide_approved_edit(state: FleetState, hold: Hold, at: At) -> Decision:
    """Make an edit that was approved, unless it would do more by now than was seen, by more than a budget: ask anew.

    What was seen is seen of zones. Where others would lose together by now, nothing of it was.
    """
    edit = Edit(hold.policy, hold.policy_after, hold.zone, hold.labels_after)
    proposal = propose(state, edit, at.offset + 1)
    lost = losses(state, proposal)
    unseen = _unseen(state, hold, proposal, lost)
    if not _over_budget(state, unseen, at):
        return Decision(Edited(proposal, unseen, (hold.id,)), DONE)
    asked = _asked(state, proposal, _over_budget(state, lost, at), at)
    reason = (
        f"{_said(edit)} would withdraw {asked['addresses']} addresses at once by now, of which approvers were not shown"
        " as many, or not of the same zones; look at its zones and approve it anew"
    )
    return Decision(
        HoldChanged(replace(hold, reason=reason, approvals=(), **asked)), Outcome("held", reason, hold=hold.id)
    )


def _said(edit: Edit) -> str:
    """An edit as the beginning of a sentence about it."""
    return f"policy: {edit.policy!r}" if edit.policy else f"zone: the labels of {edit.zone!r}"


def _unseen(state: FleetState, hold: Hold, proposal: Proposal, lost: Mapping[Pair, int]) -> dict[Pair, int]:
    """What an edit would take away by now beyond what was seen when it was asked for."""
    zones = _zones_by_move(state, proposal)
    seen = {pair: hold.seen.get(_key(state, zones[pair], hold.asked), 0) for pair in lost}
    return {pair: max(0, count - seen[pair]) for pair, count in lost.items()}


def _says_the_same(hold: Hold, edit: Edit) -> bool:
    """Whether an edit of the same thing would make the same of it as the one that waits."""
    waits, asked = hold.policy_after, edit.policy_after
    if waits is None or asked is None:
        return waits is asked and hold.labels_after == edit.labels_after
    return waits.says() == asked.says()


def _release(state: FleetState, name: str, hold: int) -> Move:
    """Let go of what a hold keeps of a node, and take the state that it withholds."""
    before, parts = state.members.rows[name], state.parts(name)
    outs = tuple(part for part in parts if part.hold == hold)
    stays = tuple(part for part in parts if part.hold != hold)
    kind: Kind = "inferred"
    return Move(name, kind, before, None if before.held else before, outs, stays, arrives=before.withheld == hold)


def decide_rejection(state: FleetState, event: HoldRejected) -> Decision:
    hold = state.holds.rows.get(hold_key(event.hold))
    if hold is None:
        return refusal(f"hold: {event.hold} is not a hold that is open")
    if hold.subject == "members":
        return Decision(HoldChanged(replace(hold, approvals=(), rejected_by=event.envelope.actor)), DONE)
    return Decision(HoldDropped(hold.id), DONE)
