"""Views of the fleet: policies, holds, budgets, freezes."""

from __future__ import annotations

from heapq import nsmallest
from typing import NamedTuple

from projections.fleet.membership.effects import hold_key
from projections.fleet.membership.rows import Member
from projections.fleet.state import ANY_ZONE, FleetState
from projections.fleet.withdrawals.budgets import BUDGET_KINDS, SUBJECT_MEMBERS, Hold, reason_of
from projections.fleet.withdrawals.command_outcomes import CommandOutcome
from projections.rules.policies import Policy
from projections.rules.rule import precedence

_MAX_SHOWN_NODES = 100
_PRIORITY_MAX = 1 << 31
"""A number above every priority. Keys contain this number minus the priority: it is positive, so text order puts the
highest priority first."""

HELD = "held"
LEAVE_REJECTED = "leave rejected"
CHANGE_REJECTED = "change rejected"

EVERY_ZONE = "*"
"""Stands for the freeze of all zones; no zone can have this name."""


class HoldView(NamedTuple):
    hold: int
    kind: str
    subject: str
    reason: str
    nodes: tuple[str, ...]
    node_count: int
    addresses: int
    zones: tuple[str, ...]
    policy: str
    requested_by: str
    approved_by: tuple[str, ...]
    hash: str
    create_time_ms: int
    command_id: str
    rejected_by: str


class BudgetView(NamedTuple):
    kind: str
    permille: int
    min_addresses: int


def policies_by_key(state: FleetState) -> dict[str, Policy]:
    """Every policy, by a key that sorts in order of precedence, then by name."""
    return {_policy_key(policy): policy for policy in state.policies.rows.values()}


def _policy_key(policy: Policy) -> str:
    priority, is_allow, *_ = precedence(policy.rule)
    return f"{priority + _PRIORITY_MAX:010}/{is_allow:d}/{policy.name}"


def open_holds(state: FleetState) -> dict[str, Hold]:
    """Holds that wait for two principals, by a key that sorts the oldest first."""
    return {f"{hold.id:016}": hold for hold in state.holds.rows.values()}


def hold(state: FleetState, number: int) -> HoldView | None:
    """An open hold, or a rejected one that still retains the previous states of nodes."""
    row = state.holds.rows.get(hold_key(number)) or state.rejected.rows.get(hold_key(number))
    return None if row is None else hold_view(state, row)


def hold_view(state: FleetState, hold: Hold) -> HoldView:
    names = state.held_names.get(hold.id, {})
    return HoldView(
        hold=hold.id,
        kind=hold.kind,
        subject=hold.subject,
        reason=reason_of(hold),
        nodes=tuple(nsmallest(_MAX_SHOWN_NODES, names)),
        node_count=hold.nodes,
        addresses=hold.addresses,
        zones=hold.zones,
        policy=hold.policy,
        requested_by=hold.requested_by,
        approved_by=hold.approvals,
        hash=hold.hash.hex(),
        create_time_ms=hold.since_ms,
        command_id=hold.command_id,
        rejected_by=hold.rejected_by,
    )


def hold_state(state: FleetState, name: str) -> str:
    """`held` if an open hold covers the node, `leave rejected` or `change rejected` if a rejected hold covers it;
    empty without a hold."""
    member = state.members.rows.get(name)
    if member is None:
        return ""
    return hold_state_of(member, rejected=is_rejected(state, hold_of(state, name)))


def hold_state_of(member: Member, *, rejected: bool) -> str:
    """The hold state of a member; `rejected` says that a rejected hold covers it."""
    if not member.held and member.delayed_by < 0:
        return ""
    if not rejected:
        return HELD
    return LEAVE_REJECTED if member.held else CHANGE_REJECTED


def rejected_names(state: FleetState) -> set[str]:
    """Every node that a rejected hold covers."""
    return {name for hold in state.rejected.rows.values() for name in state.held_names.get(hold.id, ())}


def hold_of(state: FleetState, name: str) -> int:
    """The hold that retains or withholds a state of the node; -1 if there is none."""
    member = state.members.rows.get(name)
    return max(
        (part.hold for part in state.retained_states(name)), default=member.delayed_by if member is not None else -1
    )


def is_rejected(state: FleetState, number: int) -> bool:
    """Whether a hold was rejected and still retains previous states of nodes."""
    return hold_key(number) in state.rejected.rows


def command_outcome(state: FleetState, command_id: str, hold: int = -1) -> CommandOutcome | None:
    """The outcome of a command in fleet, if it differs from the outcome in its zone."""
    asked_for = (row for row in state.holds.rows.values() if command_id and row.command_id == command_id)
    waiting = [row for row in asked_for if row.subject == SUBJECT_MEMBERS]
    if waiting:
        newest = max(waiting, key=lambda row: row.id)
        reason = f"hold {newest.id} keeps the previous state in the rule tables: the change is over the budget"
        return CommandOutcome("held", reason, newest.id, -1)
    return state.command_outcomes.rows.get(command_id) or state.command_outcomes.rows.get(hold_key(hold))


def budgets(state: FleetState) -> list[BudgetView]:
    """Every budget."""
    rows = (state.budgets.rows[kind] for kind in BUDGET_KINDS)
    return [BudgetView(row.kind, row.permille, row.min_addresses) for row in rows]


def frozen(state: FleetState) -> list[str]:
    """Frozen zones; EVERY_ZONE stands for all."""
    return sorted(EVERY_ZONE if zone == ANY_ZONE else zone for zone in state.freezes.rows)
