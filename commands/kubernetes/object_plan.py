"""Compares the specs of RulePolicy and DPURack objects, and the verdicts of Hold objects, with fleet. Pure.

The result is the event to append, or nothing if fleet has the values already. An edit that waits in fleet for approval
counts as present in fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from commands.kubernetes.users import UserNames
from commands.requests.validation import EnvelopeFactory
from projections.attempt_limits import LEAVE_AS_IS, updated_limits
from projections.field_checks import quoted
from projections.fleet.membership.effects import hold_key
from projections.fleet.staging.statements import in_stages, set_at_once
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import Hold
from projections.fleet.withdrawals.holds import holds_of_edit
from projections.fleet.withdrawals.principals import person
from projections.kubernetes.policy_status import policy_set
from projections.rules.policies import BUILT_IN, Policy, policy_of
from projections.staging.plan import StagePlan
from schemas.events import Envelope, HoldApproved, HoldRejected, PolicyDeleted, PolicySet, PolicyStaged, ZoneUpdated
from schemas.resources.dpu_rack import DPURackSpec
from schemas.resources.hold import HoldSpec, HoldVerdict
from schemas.resources.rule_policy import RulePolicySpec

SpecEvent: TypeAlias = PolicySet | PolicyDeleted | PolicyStaged | ZoneUpdated
VerdictEvent: TypeAlias = HoldApproved | HoldRejected

REJECT = "Reject"


def policy_event(name: str, spec: RulePolicySpec, envelope: Envelope) -> PolicySet | PolicyDeleted | PolicyStaged:
    """The event for the spec of a RulePolicy."""
    is_deleted, staging = spec.state == "Absent", spec.staging
    if staging is None:
        return PolicyDeleted(envelope, name) if is_deleted else policy_set(name, spec, envelope)
    return in_stages(
        policy_set(name, spec, envelope),
        StagePlan(tuple(staging.stages), staging.bake_time_seconds * 1_000, staging.failure_budget),
        is_deleted=is_deleted,
    )


def zone_event(zone: str, spec: DPURackSpec, envelope: Envelope) -> ZoneUpdated | None:
    """The event for the spec of a DPURack. None if the spec sets no value, as in an object that the plane made."""
    attempts = spec.attempts
    limits = [] if attempts is None else [attempts.transient, attempts.device, attempts.operator]
    stated = [LEAVE_AS_IS if limit is None else limit for limit in limits]
    event = ZoneUpdated(
        envelope=envelope,
        zone=zone,
        set_labels=spec.labels is not None,
        labels=dict(sorted((spec.labels or {}).items())),
        parallel_installs=LEAVE_AS_IS if spec.parallel_installs is None else spec.parallel_installs,
        unavailable_nodes=LEAVE_AS_IS if spec.unavailable_nodes is None else spec.unavailable_nodes,
        set_agent_networks=spec.agent_networks is not None,
        agent_networks=spec.agent_networks or [],
        set_agent_label_keys=spec.agent_label_keys is not None,
        agent_label_keys=spec.agent_label_keys or [],
        attempt_limits=stated,
    )
    is_set = event.set_labels or event.set_agent_networks or event.set_agent_label_keys
    numbers = {event.parallel_installs, event.unavailable_nodes, *stated}
    return event if is_set or numbers != {LEAVE_AS_IS} else None


def is_in_fleet(fleet: FleetState, event: SpecEvent) -> bool:
    """Whether fleet has the values of a spec, or an edit with these values waits for approval."""
    match event:
        case ZoneUpdated():
            return _has_limits(fleet, event) and (not event.set_labels or _has_labels(fleet, event))
        case PolicySet():
            return _has_policy(fleet, event.name, event)
        case PolicyStaged():
            return _has_policy(fleet, event.name, None if event.is_deleted else set_at_once(event))
        case PolicyDeleted():
            return _has_policy(fleet, event.name, None)


def _has_policy(fleet: FleetState, name: str, event: PolicySet | None) -> bool:
    """Whether the policy is as `event` sets it, or deleted, or an edit that does so waits for approval or is staged."""
    present, waiting = fleet.policies.rows.get(name), _waiting(fleet, policy=name)
    change = fleet.staged
    edits = [hold.policy_after for hold in waiting]
    if change is not None and change.is_open and change.policy == name:
        edits.append(change.after)
    return any(_is_as_set(policy, event) for policy in edits or [present])


def _is_as_set(policy: Policy | None, event: PolicySet | None) -> bool:
    """Whether a policy is as `event` sets it, or deleted if that is None."""
    if event is None:
        return policy is None or policy.content() == BUILT_IN.content()
    return policy is not None and policy.content() == policy_of(event, 0).content()


def _waiting(fleet: FleetState, *, policy: str = "", zone: str = "") -> Sequence[Hold]:
    return [fleet.holds.rows[hold_key(number)] for number in holds_of_edit(fleet, policy=policy, zone=zone)]


def _has_labels(fleet: FleetState, event: ZoneUpdated) -> bool:
    waiting = _waiting(fleet, zone=event.zone)
    if any(hold.labels_after == event.labels for hold in waiting):
        return True
    return dict(fleet.zone(event.zone).labels) == event.labels and not waiting


def _has_limits(fleet: FleetState, event: ZoneUpdated) -> bool:
    zone = fleet.zone(event.zone)
    return (
        event.parallel_installs in (LEAVE_AS_IS, zone.parallel_installs)
        and event.unavailable_nodes in (LEAVE_AS_IS, zone.unavailable_nodes)
        and (not event.set_agent_networks or {*event.agent_networks} == {*zone.agent_networks})
        and (not event.set_agent_label_keys or {*event.agent_label_keys} == {*zone.agent_label_keys})
        and updated_limits(zone.attempt_limits, event.attempt_limits) == zone.attempt_limits
    )


class CheckedVerdict(NamedTuple):
    """A verdict, with the event to append, or the reason why the verdict does not count. It has neither if fleet has
    the verdict already."""

    verdict: HoldVerdict
    event: VerdictEvent | None = None
    fault: str = ""


def verdicts(
    number: int, spec: HoldSpec, fleet: FleetState, users: UserNames, make: EnvelopeFactory
) -> list[CheckedVerdict]:
    """The verdicts on a hold, with rejections first, because a rejection keeps the rules as they are. Empty unless the
    hold is open. `make` makes the envelope for an actor."""
    hold = fleet.holds.rows.get(hold_key(number))
    if hold is None or hold.rejected_by or hold_key(number) in fleet.rejected.rows:
        return []
    return [*_checked(hold, sorted(spec.verdicts, key=lambda each: (each.verdict != REJECT, each.user)), users, make)]


def _checked(
    hold: Hold, given: Sequence[HoldVerdict], users: UserNames, make: EnvelopeFactory
) -> Iterator[CheckedVerdict]:
    approved = {person(actor) for actor in hold.approvals}
    for verdict in given:
        actor = users.approver(verdict.user)
        field = f"spec.verdicts[{verdict.user}]"
        if actor is None:
            yield CheckedVerdict(verdict, fault=users.fault(f"{field}.user", verdict.user))
        elif verdict.hash != hold.hash.hex():
            said = f"{quoted(verdict.hash)} must be the present hash of the hold, {hold.hash.hex()}"
            yield CheckedVerdict(verdict, fault=f"{field}.hash: {said}")
        elif verdict.verdict == REJECT:
            yield CheckedVerdict(verdict, HoldRejected(make(actor), hold.id))
        elif person(actor) == person(hold.requested_by):
            yield CheckedVerdict(
                verdict, fault=f"{field}.user: {quoted(verdict.user)} requested this change; others must approve"
            )
        elif person(actor) in approved:
            yield CheckedVerdict(verdict)
        else:
            yield CheckedVerdict(verdict, HoldApproved(make(actor), hold.id, hold.hash))
