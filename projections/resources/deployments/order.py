"""The order in which the services of a DPUDeployment are derived: each after the services that it depends on."""

from __future__ import annotations

from collections.abc import Mapping

from projections.resources.deployments.specs import DeploymentService


def dependency_order(services: Mapping[str, DeploymentService]) -> tuple[str, ...] | str:
    """The names of services in order of dependency, then by name; or the fault of a dependency."""
    open_by_name: dict[str, set[str]] = {}
    for name, service in services.items():
        needed = {each.name for each in service.depends_on or ()}
        if unknown := sorted(needed - set(services)):
            return f"services.{name}.dependsOn: {unknown[0]!r} is not a service of the deployment"
        open_by_name[name] = needed
    order: list[str] = []
    while open_by_name:
        ready = sorted(name for name, needed in open_by_name.items() if not needed)
        if not ready:
            return f"services: {', '.join(sorted(open_by_name))} depend on each other"
        for name in ready:
            del open_by_name[name]
        for needed in open_by_name.values():
            needed.difference_update(ready)
        order += ready
    return tuple(order)
