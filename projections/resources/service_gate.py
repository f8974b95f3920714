"""The services that a DPU waits for before it is put into service, as the gate of its flavor says.

`DPUServiceCriticalPodsReady` waits for critical services only: those with the label `svc.dpu.nvidia.com/critical`.
Without a gate, and with `OperationalReady`, every service counts. DPF passes a DPU without a gate at once, and so calls
DPUs ready that have never run their services. `OperationalReady` also waits for the other operational conditions of the
DPU: problems of its node, interfaces and chains.
"""

from __future__ import annotations

from projections.resources.conditions.operational import CRITICAL, SUMMARY, operational_conditions
from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import flavor_of
from projections.resources.go_templates.render import Fault
from projections.resources.host_readiness import critical_services
from projections.resources.step_facts import StepFacts


def awaited_services(world: World, facts: StepFacts) -> frozenset[str] | None:
    """The ids of the services that a DPU waits for; None if it waits for all."""
    if _gate(world, facts) != CRITICAL:
        return None
    return frozenset(critical_services(world.state, world.derivation, facts))


def operational_wait(world: World, facts: StepFacts) -> str:
    """The condition that a DPU with the gate `OperationalReady` waits for although its services are ready, in words;
    empty if it waits for none."""
    if _gate(world, facts) != SUMMARY:
        return ""
    _, *found = operational_conditions(facts.key, world) or ((),)
    unmet = next((each for each in found if not each.holds), None)
    return "" if unmet is None else f"condition {unmet.type}: {unmet.message}"


def _gate(world: World, facts: StepFacts) -> str:
    wanted = world.derivation.dpus.winners.get(facts.key)
    flavor = flavor_of(world, wanted) if wanted is not None else None
    if flavor is None or isinstance(flavor, Fault):
        return ""
    readiness = flavor.spec.get("serviceReadiness")
    return str(readiness.get("gate", "")) if isinstance(readiness, dict) else ""
