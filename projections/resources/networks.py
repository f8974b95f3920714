"""The objects that address pools, networks, interfaces and chains become in each DPU cluster, as DPF writes them.

One object of a kind serves a whole DPU cluster. The objects for each node follow from it on the node itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from projections.resources.clusters import in_cluster
from projections.resources.kinds import (
    CIDR_POOL,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_IPAM,
    DPU_SERVICE_NAD,
    IP_POOL,
    NETWORK_ATTACHMENT,
    SERVICE_CHAIN_SET,
    SERVICE_INTERFACE_SET,
)
from projections.resources.lookup import Lookup
from projections.resources.service_specs import (
    ClusterSelecting,
    IPAMSpec,
    IPRange,
    IPv4Network,
    IPv4Subnet,
    NADSpec,
    SetSpec,
)
from projections.resources.specs import JSON, Labels, read, without_absent
from projections.resources.state import Resource, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import IPAM_NAME, IPAM_NAMESPACE, SHARED
from schemas.resources.dpf.networks import IPAM_CHILD_NAME, TRUSTED_FUNCTIONS

_RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"
_RESOURCES = {"sf": "nvidia.com/bf_sf", "vf": "nvidia.com/bf_vf", "veth": ""}
_CNI_VERSION = "0.3.1"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that kubectl keeps for itself."""


class Shape(msgspec.Struct, frozen=True):
    """An object of a DPU cluster without its place."""

    kind: str
    name: str
    spec: JSON
    labels: Labels
    annotations: Labels


def objects_in_clusters(key: str, row: Resource, lookup: Lookup) -> list[Wanted] | str:
    """The objects that follow from an object in each DPU cluster that it selects, or the fault that prevents it."""
    at = object_id(key)
    spec, shape = _SHAPES[at.kind](key, row)
    if isinstance(spec, str) or shape is None:
        return spec if isinstance(spec, str) else []
    if isinstance(shape, str):
        return shape
    clusters = lookup.clusters(at.source, spec.clusters)
    if isinstance(clusters, str):
        return clusters
    return [
        Wanted(
            in_cluster(cluster, shape.kind, at.namespace, shape.name),
            key,
            shape.spec,
            shape.labels,
            shape.annotations,
        )
        for cluster in clusters
    ]


_Shaped = tuple[ClusterSelecting | str, Shape | str | None]


def _of_set(kind: str, key: str, row: Resource) -> _Shaped:
    spec = read(SetSpec, row)
    if isinstance(spec, str):
        return spec, None
    meta = spec.template.metadata
    labels, annotations = (meta.labels, meta.annotations) if meta else (None, None)
    return spec, Shape(kind, object_id(key).name, spec.template.spec, labels or {}, annotations or {})


def _of_chain(key: str, row: Resource) -> _Shaped:
    return _of_set(SERVICE_CHAIN_SET, key, row)


def _of_interface(key: str, row: Resource) -> _Shaped:
    return _of_set(SERVICE_INTERFACE_SET, key, row)


def _of_ipam(key: str, row: Resource) -> _Shaped:
    spec, at = read(IPAMSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec, None
    network, subnet = spec.ipv4_network, spec.ipv4_subnet
    if (network is None) == (subnet is None):
        return spec, "exactly one of ipv4Network and ipv4Subnet must be given"
    if (network and network.subnets_per_dpu_cluster) or (subnet and subnet.blocks_per_dpu_cluster):
        return spec, "a pool that is divided among DPU clusters is not supported yet"
    kind, content = (CIDR_POOL, _cidr_pool(network)) if network else (IP_POOL, _ip_pool(subnet or IPv4Subnet()))
    own = {IPAM_NAME: at.name, IPAM_NAMESPACE: at.namespace}
    given, annotations = (spec.metadata.labels, spec.metadata.annotations) if spec.metadata else (None, None)
    name = row.annotations.get(IPAM_CHILD_NAME) or at.name
    content = without_absent({**content, "nodeSelector": spec.node_selector})
    return spec, Shape(kind, name, content, {**(given or {}), **own}, annotations or {})


def _cidr_pool(network: IPv4Network) -> JSON:
    exclusions = [{"startIP": address, "endIP": address} for address in network.exclusions or ()]
    exclusions += _ranges(network.exclude_ranges)
    allocations = network.allocations or {}
    return {
        "cidr": network.network,
        "gatewayIndex": network.gateway_index,
        "perNodeNetworkPrefix": network.prefix_size,
        "exclusions": exclusions or None,
        "staticAllocations": [{"nodeName": node, "prefix": allocations[node]} for node in sorted(allocations)] or None,
        "defaultGateway": network.default_gateway,
        "routes": network.routes or None,
    }


def _ip_pool(subnet: IPv4Subnet) -> JSON:
    return {
        "subnet": subnet.subnet,
        "perNodeBlockSize": subnet.per_node_ip_count,
        "gateway": subnet.gateway,
        "exclusions": _ranges(subnet.exclude_ranges) or None,
        "defaultGateway": subnet.default_gateway,
        "routes": subnet.routes or None,
    }


def _ranges(ranges: tuple[IPRange, ...] | None) -> list[JSON]:
    return [{"startIP": each.start_ip, "endIP": each.end_ip} for each in ranges or ()]


def _of_nad(key: str, row: Resource) -> _Shaped:
    spec, at = read(NADSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec, None
    plugin: JSON = {"type": "ovs", "mtu": spec.service_mtu or 0, "bridge": spec.bridge or "", "interface_type": "dpdk"}
    if spec.ipam:
        plugin["ipam"] = {"type": "nv-ipam"}
    config: JSON = {"cniVersion": _CNI_VERSION, "name": at.name}
    if spec.chained_cnis:
        config["plugins"] = [plugin, *({"type": each.type, **(each.config or {})} for each in spec.chained_cnis)]
    else:
        config |= plugin
    resource = _RESOURCES.get(spec.resource_type, _RESOURCES["sf"])
    if spec.resource_type == "sf" and TRUSTED_FUNCTIONS in row.annotations:
        resource = f"{resource}_trusted"
    own = {f"{SHARED}/dpuservicenad-name": at.name, f"{SHARED}/dpuservicenad-namespace": at.namespace}
    text = msgspec.json.encode(config, order="sorted").decode()
    annotations = {name: value for name, value in row.annotations.items() if name != _LAST_APPLIED}
    annotations[_RESOURCE_NAME] = resource
    return spec, Shape(NETWORK_ATTACHMENT, at.name, {"config": text}, {**row.labels, **own}, annotations)


_SHAPES: Mapping[str, Callable[[str, Resource], _Shaped]] = {
    DPU_SERVICE_CHAIN: _of_chain,
    DPU_SERVICE_INTERFACE: _of_interface,
    DPU_SERVICE_IPAM: _of_ipam,
    DPU_SERVICE_NAD: _of_nad,
}

KINDS = frozenset(_SHAPES)
"""The kinds that become objects in DPU clusters."""
