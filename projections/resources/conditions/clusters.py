"""Conditions of DPUClusters: the control plane exists, keepalived is in front of it, and the API server answers."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import READY, Condition, condition
from projections.resources.conditions.world import World
from projections.resources.control_planes.specs import DPUClusterSpec, kubeconfig_name
from projections.resources.kinds import DAEMON_SET, SERVICE, TENANT_CONTROL_PLANE, short_name
from projections.resources.state import object_id
from schemas.resources.dpf.cluster import KAMAJI


def of_cluster(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUCluster. It is ready once its API server answers, also if the plane did not make it."""
    created = condition("Created", _faults(key, world))
    answers = world.unready(key, "has not answered yet")
    if answers is None:
        return (condition(READY, ()), condition("Created", ()))
    causes = created.blames or (answers,)
    has_failed = (seen := world.observed.get(key)) is not None and seen.phase == "Failed"
    ready = condition(READY, causes, "Error" if has_failed else "Pending")
    spec = world.read(key, DPUClusterSpec)
    if not isinstance(spec, DPUClusterSpec) or spec.type != KAMAJI or spec.keepalived is None:
        return (ready, created)
    daemon = object_id(key)._replace(kind=DAEMON_SET, name=f"{object_id(key).name}-keepalived").key
    wanted = daemon in world.derivation.in_clusters.claims.winners
    return (ready, created, condition("KeepalivedReady", () if wanted else created.blames))


def cluster_phase(key: str, world: World) -> str:
    """The phase of a DPUCluster of which no manager has reported one: Creating once its control plane is begun."""
    at = object_id(key)
    begun = any(at._replace(kind=kind).key in world.observed for kind in (SERVICE, TENANT_CONTROL_PLANE))
    return "Creating" if begun else "Pending"


def _faults(key: str, world: World) -> Iterator[Blame]:
    """Why there is no control plane to connect to."""
    spec, at = world.read(key, DPUClusterSpec), object_id(key)
    if not isinstance(spec, DPUClusterSpec):
        text = f"cannot be read: {spec}" if spec else "does not exist"
        yield Blame(key, f"{short_name(key)} {text}")
        return
    if not kubeconfig_name(at.name, spec):
        yield Blame(key, f"{short_name(key)} names no Secret with a kubeconfig, and type {spec.type} needs one")
    if spec.type != KAMAJI:
        return
    service, tenant = at._replace(kind=SERVICE).key, at._replace(kind=TENANT_CONTROL_PLANE).key
    seen = world.observed.get(tenant)
    if seen is None and spec.keepalived is not None and service not in world.observed:
        yield Blame(service, f"{short_name(service)} has no port on the nodes yet", is_unknown=True)
    elif seen is None:
        yield Blame(tenant, f"{short_name(tenant)} has not been made yet (Kamaji reports it)", is_unknown=True)
    elif not seen.is_ready:
        phase = f"is in phase {seen.phase}" if seen.phase else "is not ready"
        yield Blame(tenant, f"{short_name(tenant)} {phase}" + (f": {seen.message}" if seen.message else ""))
