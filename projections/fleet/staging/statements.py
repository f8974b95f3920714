"""The fields of a staged change as its user gives them: stages, bake time, failure budget."""

from __future__ import annotations

from collections.abc import Sequence

from projections.field_checks import check_labels, check_zone, quoted
from projections.fleet.staging.rows import ALL, MAX_STAGES, StagePlan
from projections.rules.policies import fault_of_policy
from projections.sizes import MAX_BAKE_MS, Size, read_size
from schemas.events import PolicySet, PolicyStaged


def fault_of_stages(stages: Sequence[str], bake_ms: int, failure_budget: str) -> str | None:
    """Why the stages of a change are invalid, in one sentence; None if they are valid."""
    if not 2 <= len(stages) <= MAX_STAGES:
        return f"stages: {len(stages)} stages must be from 2 to {MAX_STAGES}"
    sizes: list[Size] = []
    for number, text in enumerate(stages):
        key, equals, value = text.partition("=")
        size = read_size(text)
        if equals and (fault := check_labels("stages", {key: value})):
            return fault
        if not equals and (size is None or size.number < 1):
            return f"stages[{number}]: {quoted(text)} must be a number, a percentage, or KEY=VALUE of zones"
        sizes += [size] if size is not None else []
    if stages[-1] != ALL or ALL in stages[:-1]:
        return f"stages: the last one, and no other, must be {ALL}"
    if _decreases(sizes):
        return "stages: must not decrease: a stage is the share of all DPUs that have the change after it"
    if not 0 <= bake_ms <= MAX_BAKE_MS:
        return f"bake_ms: {bake_ms} must be from 0 to {MAX_BAKE_MS}"
    if read_size(failure_budget) is None:
        return f"failure_budget: {quoted(failure_budget)} must be a number of DPUs or a percentage, such as 1 or 5%"
    return None


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


def _decreases(sizes: Sequence[Size]) -> bool:
    for kind in (True, False):
        numbers = [size.number for size in sizes if size.is_percentage == kind]
        if numbers != sorted(numbers):
            return True
    return False
