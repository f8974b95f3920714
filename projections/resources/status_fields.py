"""Fields of the status of an object that follow from other objects: they are neither observed nor conditions."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from projections.resources.charts import needed_versions
from projections.resources.clusters import selected_clusters
from projections.resources.conditions.operational import operational_conditions
from projections.resources.conditions.set_dpus import groups
from projections.resources.conditions.world import World
from projections.resources.handover import outdated
from projections.resources.install_identity import image_of
from projections.resources.kinds import DPU, DPU_FLAVOR, DPU_SERVICE, DPU_SERVICE_TEMPLATE, DPU_SET, short_name
from projections.resources.service_specs import ServiceSpec
from projections.resources.services.config_ports import exposed, service_id
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted

OPERATIONAL = "operationalConditions"
FIRST_PHASE = "Initializing"
"""The phase of a DPU of which nothing has been reported."""


def status_fields(key: str, world: World) -> dict[str, Any]:
    """The fields of the status of an object by name."""
    kind = object_id(key).kind
    if kind == DPU_SET:
        return _of_set(key, world)
    if kind == DPU_SERVICE_TEMPLATE:
        row = world.stated(key)
        versions = needed_versions(row, world.observed.get(key)) if row is not None else {}
        return {"versions": versions} if versions else {}
    if kind == DPU_SERVICE:
        return _of_service(key, world)
    return _of_dpu(key, world) | _of_operation(key, world) if kind == DPU else {}


def _of_set(key: str, world: World) -> dict[str, Any]:
    """The number of DPUs in each phase."""
    phases: Counter[str] = Counter()
    for group in groups(key, world):
        phases[group.phase or FIRST_PHASE] += len(group.keys)
    return {"dpuStatistics": dict(sorted(phases.items()))} if phases else {}


def _of_service(key: str, world: World) -> dict[str, Any]:
    """The ports that hosts can reach, by DPU cluster. All of them have one Service in the cluster of the hosts."""
    spec, at = world.read(key, ServiceSpec), object_id(key)
    if not isinstance(spec, ServiceSpec) or spec.config_ports is None:
        return {}
    seen = world.observed.get(service_id(at).key)
    ports = exposed(spec.config_ports, seen.fields if seen is not None else None)
    clusters = selected_clusters(world.state, at.source, spec.clusters)
    names = [] if spec.deploy_in_cluster or isinstance(clusters, str) else [object_id(each).name for each in clusters]
    return {"configPorts": dict.fromkeys(names, ports)} if ports and names else {}


def _of_dpu(key: str, world: World) -> dict[str, Any]:
    """Why a DPU must be installed anew to be as its DPUSet wants it."""
    reason, wanted = outdated(world.state, world.derivation, key), world.wanted(key)
    if reason is None or wanted is None:
        return {}
    what = "configuration of the same image" if reason == "OutdatedDPUFlavor" else "image"
    message = f"{short_name(wanted.owner)} wants another {what} than the installed one"
    time = datetime.fromtimestamp(_changed_ms(wanted, world) // 1_000, UTC)
    return {"outdated": {"timeStamp": f"{time:%Y-%m-%dT%H:%M:%SZ}", "reason": reason, "message": message}}


def _of_operation(key: str, world: World) -> dict[str, Any]:
    """The operational conditions of a DPU."""
    found = [
        {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
        for each in operational_conditions(key, world)
    ]
    return {OPERATIONAL: found} if found else {}


def _changed_ms(wanted: Wanted, world: World) -> int:
    """The time of the last change of the objects that say what shall be installed."""
    image, at = image_of(wanted), wanted.at
    keys = [wanted.owner, world.derivation.children.holders.get(wanted.owner, "")]
    keys += [image.key] if image is not None else []
    keys.append(ObjectId(at.source, DPU_FLAVOR, at.namespace, wanted.spec.get("dpuFlavor") or "").key)
    return max((row.changed_ms for key in keys if (row := world.stated(key)) is not None), default=0)
