"""The status of a RulePolicy: whether fleet has the policy of its spec, and how many zones and addresses it selects."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import SUBJECT_POLICY
from projections.kubernetes.status_body import Condition, Position, StatusBody
from projections.rules.policies import Policy, matches, policy_of
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
) -> StatusBody:
    """The status of a policy's object. `addresses` is `fleet.slot_table.count_by_labels()`."""
    policy, hold = fleet.policies.rows.get(name), _hold_of(name, fleet)
    content: dict[str, Any] = {
        "observedGeneration": observed_generation,
        "version": policy.version if policy is not None else 0,
        "zones": _zones(policy, fleet) if policy is not None else 0,
        "addresses": _addresses(policy, fleet, addresses) if policy is not None else 0,
        "conditions": [_ready(name, spec, policy, hold).document(observed_generation)],
    }
    if hold is not None:
        content["hold"] = hold
    return StatusBody(content, position, time_ms)


def _hold_of(name: str, fleet: FleetState) -> int | None:
    """The newest open hold of an edit of the policy."""
    edits = (row.id for row in fleet.holds.rows.values() if row.subject == SUBJECT_POLICY and row.policy == name)
    return max(edits, default=None)


def _ready(name: str, spec: RulePolicySpec, policy: Policy | None, hold: int | None) -> Condition:
    if hold is not None:
        return Condition(READY_CONDITION, False, "Held", f"hold {hold} waits until two people approve the change")
    if policy is None or policy.content() != _stated(name, spec).content():
        return Condition(READY_CONDITION, False, "NotApplied", "the plane does not have this policy yet, or refused it")
    return Condition(READY_CONDITION, True, "Applied", f"the policy is in force since version {policy.version}")


def _stated(name: str, spec: RulePolicySpec) -> Policy:
    """The policy that the spec of an object describes."""
    ports = [*chain.from_iterable((each.first, each.last) for each in spec.ports)]
    envelope = Envelope("", name, "", 0)
    event = PolicySet(
        envelope, name, spec.priority, spec.action, spec.protocol, ports, dict(spec.sources), dict(spec.zones)
    )
    return policy_of(event, 0)


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
