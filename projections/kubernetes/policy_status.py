"""The status of a RulePolicy: whether fleet has the policy of its spec, and how many zones and addresses it selects.

The name of an object is the name of its policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from projections.fleet.staging.rows import StagedChange
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import SUBJECT_POLICY
from projections.kubernetes.statements import NO_ACCEPTANCE, STATED, Acceptance
from projections.kubernetes.status_body import Condition, Position, StatusBody
from projections.rules.policies import BUILT_IN, Policy, matches, policy_of
from projections.staging.course import stage_text
from schemas.events import Envelope, PolicySet
from schemas.resources.rule_policy import RulePolicySpec

READY_CONDITION = "Ready"


def policy_status(
    name: str,
    spec: RulePolicySpec,
    fleet: FleetState,
    addresses: Mapping[tuple[int, ...], int],
    position: Position,
    *,
    observed_generation: int,
    time_ms: int,
    accepted: Acceptance = NO_ACCEPTANCE,
) -> StatusBody:
    """The status of a policy's object. `addresses` is `fleet.slot_table.count_by_labels()`."""
    policy, hold = fleet.policies.rows.get(name), _hold_of(name, fleet)
    content: dict[str, Any] = {
        "observedGeneration": observed_generation,
        "version": policy.version if policy is not None else 0,
        "zones": _zones(policy, fleet) if policy is not None else 0,
        "addresses": _addresses(policy, fleet, addresses) if policy is not None else 0,
        "conditions": [
            _ready(name, spec, policy, hold, fleet.staged).document(observed_generation),
            *accepted.conditions,
        ],
    }
    if accepted.stated:
        content[STATED] = accepted.stated
    if hold is not None:
        content["hold"] = hold
    return StatusBody(content, position, time_ms)


def _hold_of(name: str, fleet: FleetState) -> int | None:
    """The newest open hold of an edit of the policy."""
    edits = (row.id for row in fleet.holds.rows.values() if row.subject == SUBJECT_POLICY and row.policy == name)
    return max(edits, default=None)


def _ready(
    name: str, spec: RulePolicySpec, policy: Policy | None, hold: int | None, staged: StagedChange | None
) -> Condition:
    if hold is not None:
        return Condition(READY_CONDITION, False, "Held", f"hold {hold} waits until two people approve the change")
    if staged is not None and staged.policy == name and not staged.result:
        return _staged(staged)
    if spec.state == "Absent":
        if policy is None or policy == BUILT_IN:
            return Condition(READY_CONDITION, True, "Deleted", "the plane has no such policy")
        return Condition(READY_CONDITION, False, "NotApplied", "the policy is still in force")
    if policy is None or policy.content() != policy_of(policy_set(name, spec, Envelope("", name, "", 0)), 0).content():
        message = "the plane does not have this policy: see the condition Accepted, or it was rejected or changed since"
        return Condition(READY_CONDITION, False, "NotApplied", message)
    return Condition(READY_CONDITION, True, "Applied", f"the policy is in force since version {policy.version}")


def _staged(row: StagedChange) -> Condition:
    """The condition while a change of the policy has not ended."""
    message = row.held or f"the change is at {stage_text(row)}"
    if row.paused_by:
        message = f"{message}, paused by {row.paused_by}"
    if row.undone_by:
        message = f"all DPUs return to the policy before the change, by request of {row.undone_by}"
    return Condition(READY_CONDITION, False, row.phase.capitalize(), message)


def policy_set(name: str, spec: RulePolicySpec, envelope: Envelope) -> PolicySet:
    """The event that sets the policy to the spec of an object."""
    ports = [*chain.from_iterable((each.first, each.last) for each in spec.ports)]
    sources, zones = dict(sorted(spec.sources.items())), dict(sorted(spec.zones.items()))
    return PolicySet(envelope, name, spec.priority, spec.action, spec.protocol, ports, sources, zones)


def _zones(policy: Policy, fleet: FleetState) -> int:
    return sum(len(zones) for labels, zones in fleet.zones.by_labels.items() if matches(policy.zones, dict(labels)))


def _addresses(policy: Policy, fleet: FleetState, addresses: Mapping[tuple[int, ...], int]) -> int:
    """The number of addresses of the nodes that the policy selects; an address of several nodes counts once."""
    sets = fleet.labels.sets
    return sum(
        count
        for numbers, count in addresses.items()
        if any(matches(policy.sources, sets[number]) for number in numbers)
    )
