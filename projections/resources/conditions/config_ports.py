"""The condition of a DPUService that hosts can reach its config ports."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.clusters import cluster_source, selected_clusters
from projections.resources.conditions.condition import Condition, condition
from projections.resources.conditions.world import World
from projections.resources.kinds import ENDPOINT_SLICE, SERVICE, short_name
from projections.resources.service_specs import ServiceSpec
from projections.resources.services.config_ports import ports_on_nodes, service_id
from projections.resources.state import object_id

_OWN = (SERVICE, ENDPOINT_SLICE)


def config_ports_reconciled(key: str, spec: ServiceSpec, world: World) -> Condition:
    """The Service for hosts exists, and in each DPU cluster the chart has made the Service that it leads to."""
    claims = world.derivation.in_clusters.claims
    lost = [
        Blame(holder, f"{short_name(name)} belongs to {short_name(holder)}, which is older than {short_name(key)}")
        for name, holder in sorted(claims.lost(key).items())
        if object_id(name).kind in _OWN
    ]
    if lost:
        return condition("ConfigPortsReconciled", lost, "Error")
    return condition("ConfigPortsReconciled", _missing(key, spec, world))


def _missing(key: str, spec: ServiceSpec, world: World) -> Iterator[Blame]:
    at, given = object_id(key), spec.config_ports
    clusters = selected_clusters(world.state, at.source, spec.clusters)
    if given is None or not given.ports or spec.deploy_in_cluster or isinstance(clusters, str) or not clusters:
        return
    service = service_id(at)
    if service.key not in world.observed:
        text = f"{short_name(service.key)} has not been applied yet (the driver of the cluster reports it)"
        yield Blame(service.key, text, is_unknown=True)
    for cluster in clusters:
        source = cluster_source(cluster)
        found = ports_on_nodes(at, given, world.state.seen_of_kind(source, SERVICE))
        if missing := [port.name for port in given.ports if port.name not in found]:
            where = f"DPU cluster {object_id(cluster).namespace}/{object_id(cluster).name}"
            text = f"the chart of {short_name(key)} has no Service with a node port for {', '.join(missing)} in {where}"
            yield Blame(key, text)
