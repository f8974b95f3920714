"""The fields of a staged change of a policy as its user gives them."""

from __future__ import annotations

from projections.field_checks import check_zone
from projections.rules.policies import fault_of_policy
from projections.staging.plan import StagePlan, fault_of_stages
from schemas.events import PolicySet, PolicyStaged


def fault_of_staged(event: PolicyStaged) -> str | None:
    """Why a staged change of a policy is invalid, in one sentence; None if it is valid."""
    fault = check_zone("name", event.name) if event.is_deleted else fault_of_policy(set_at_once(event))
    return fault or fault_of_stages(event.stages, event.bake_ms, event.failure_budget)


def in_stages(event: PolicySet, plan: StagePlan, *, is_deleted: bool) -> PolicyStaged:
    """The event that sets, or deletes, the policy in stages."""
    return PolicyStaged(
        envelope=event.envelope,
        name=event.name,
        is_deleted=is_deleted,
        priority=event.priority,
        action=event.action,
        protocol=event.protocol,
        ports=event.ports,
        sources=event.sources,
        zones=event.zones,
        stages=[*plan.stages],
        bake_ms=plan.bake_ms,
        failure_budget=plan.failure_budget,
    )


def set_at_once(event: PolicyStaged) -> PolicySet:
    """The event that would set the policy at once."""
    ports, sources, zones = event.ports, event.sources, event.zones
    return PolicySet(event.envelope, event.name, event.priority, event.action, event.protocol, ports, sources, zones)


def plan_of(event: PolicyStaged) -> StagePlan:
    """The stages of a valid event."""
    return StagePlan(tuple(event.stages), event.bake_ms, event.failure_budget)
