"""The services that a DPU waits for before it is put into service, as the gate of its flavor says.

`DPUServiceCriticalPodsReady` waits for critical services only: those with the label `svc.dpu.nvidia.com/critical`.
Without a gate, and with `OperationalReady`, every service counts. DPF passes a DPU without a gate at once, and so calls
DPUs ready that have never run their services.
"""

from __future__ import annotations

from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import flavor_of
from projections.resources.go_templates.render import Fault
from projections.resources.host_readiness import critical_services
from projections.resources.step_facts import StepFacts

CRITICAL = "DPUServiceCriticalPodsReady"


def awaited_services(world: World, facts: StepFacts) -> frozenset[str] | None:
    """The ids of the services that a DPU waits for; None if it waits for all."""
    wanted = world.derivation.dpus.winners.get(facts.key)
    flavor = flavor_of(world, wanted) if wanted is not None else None
    if flavor is None or isinstance(flavor, Fault):
        return None
    readiness = flavor.spec.get("serviceReadiness")
    if not isinstance(readiness, dict) or readiness.get("gate") != CRITICAL:
        return None
    return frozenset(critical_services(world.state, world.derivation, facts))
