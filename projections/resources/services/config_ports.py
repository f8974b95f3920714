"""Config ports of a DPUService: a Service in the cluster of the hosts whose endpoints are the nodes of DPU clusters.

The chart makes a Service of type NodePort in its DPU cluster, with the labels that the plane gives it as the Helm value
`exposedPorts`. Each DPU that runs the service is then an endpoint at its own address, for the host that it is in: hosts
reach only their own DPUs. Names and labels are DPF's. DPF refuses several DPU clusters; here each of them has
EndpointSlices of its own, because the port on its nodes is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import Any

import msgspec

from projections.resources.clusters import cluster_source
from projections.resources.kinds import ENDPOINT_SLICE, NODE, SERVICE
from projections.resources.lookup import Lookup
from projections.resources.selectors import node_selects
from projections.resources.service_specs import ConfigPort, ConfigPorts, ServiceSpec
from projections.resources.services.naming import DPU_SERVICE_MANAGER, service_labels
from projections.resources.specs import JSON, Labels, Spec, without_absent
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted, suffix
from schemas.resources.dpf.names import CLUSTER_NAME, DPU_NODE_NAME, EXPOSED_PORT, HOST

ENDPOINTS_MAX = 1_000
"""Maximum number of endpoints of an EndpointSlice on an API server."""
NODE_PORT = "NodePort"
HEADLESS = "None"
PORTS = "ports"
"""Field of the observation of a Service: the port on the nodes of each of its ports."""
SERVICE_FIELD, NAMESPACE_FIELD = "service", "serviceNamespace"
"""Fields of the observation of a chart's Service: the DPUService that it belongs to."""
_SERVICE_OF_SLICE = "kubernetes.io/service-name"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_INTERNAL_IP = "InternalIP"


class _ChartService(Spec, frozen=True):
    """The observation of a Service that a chart has made in a DPU cluster."""

    service: str = ""
    service_namespace: str = ""
    ports: dict[str, int] = msgspec.field(default_factory=dict)


class _Address(Spec, frozen=True):
    type: str = ""
    address: str = ""


class _Node(Spec, frozen=True):
    """The observation of a node of a DPU cluster."""

    labels: Labels = msgspec.field(default_factory=dict)
    addresses: tuple[_Address, ...] = ()
    deleting: bool = False


_chart_service = msgspec.json.Decoder(_ChartService)
_node = msgspec.json.Decoder(_Node)


def service_id(at: ObjectId) -> ObjectId:
    """The Service of a DPUService in the cluster of the hosts."""
    return at._replace(kind=SERVICE)


def config_ports(
    at: ObjectId, spec: ServiceSpec, labels: Labels, clusters: Sequence[str], lookup: Lookup
) -> list[Wanted]:
    """The Service of a DPUService with config ports, and its EndpointSlices."""
    given = spec.config_ports
    if given is None or not given.ports or not clusters:
        return []
    found = [_service(at, given, clusters)]
    for cluster in clusters:
        source = cluster_source(cluster)
        on_nodes = ports_on_nodes(at, given, lookup.observed_of_kind(source, SERVICE))
        if not on_nodes:
            continue
        ports = [
            {"name": port.name, "port": on_nodes[port.name], "protocol": port.protocol}
            for port in given.ports
            if port.name in on_nodes
        ]
        endpoints = [*_endpoints(spec, lookup.observed_of_kind(source, NODE))]
        for start in range(0, max(1, len(endpoints)), ENDPOINTS_MAX):
            part = endpoints[start : start + ENDPOINTS_MAX]
            name = at.name if len(found) == 1 else f"{at.name}-{suffix(cluster, start)}"
            found.append(_slice(at, name, {**labels, EXPOSED_PORT: object_id(cluster).name}, ports, part))
    return found


def ports_on_nodes(at: ObjectId, given: ConfigPorts, observations: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The port on the nodes of a DPU cluster of each config port that a Service of the chart has there."""
    names, found = {port.name for port in given.ports}, dict[str, int]()
    for _, text in observations:
        service = _decoded(_chart_service, text)
        if service is not None and (service.service, service.service_namespace) == (at.name, at.namespace):
            for name, port in service.ports.items():
                if name in names and port > 0:
                    found.setdefault(name, port)
    return found


def exposed(given: ConfigPorts, observed: Mapping[str, Any] | None) -> list[JSON]:
    """The config ports that hosts can reach, by what is observed of the Service in their cluster."""
    if observed is None:
        return []
    on_nodes = observed.get(PORTS)
    on_nodes = on_nodes if isinstance(on_nodes, Mapping) else {}
    return [
        without_absent({**_port(port), "nodePort": on_nodes.get(port.name)})
        for port in given.ports
        if given.service_type != NODE_PORT or port.name in on_nodes
    ]


def _service(at: ObjectId, given: ConfigPorts, clusters: Sequence[str]) -> Wanted:
    """The Service. Each host reaches the DPUs that are in it, and no other one."""
    is_on_nodes, is_headless = given.service_type == NODE_PORT, given.service_type == HEADLESS
    ports = [
        without_absent({**_port(port), "nodePort": port.node_port if is_on_nodes else None}) for port in given.ports
    ]
    spec = without_absent(
        {
            "type": None if is_headless else given.service_type,
            "clusterIP": HEADLESS if is_headless else None,
            "internalTrafficPolicy": "Local",
            "externalTrafficPolicy": "Local" if is_on_nodes else None,
            "ports": ports,
        }
    )
    first = object_id(clusters[0]).name
    labels = {**service_labels(at), EXPOSED_PORT: first, CLUSTER_NAME: first}
    return Wanted(service_id(at), at.key, spec, labels)


def _port(port: ConfigPort) -> JSON:
    return {"name": port.name, "port": port.port, "protocol": port.protocol}


def _slice(at: ObjectId, name: str, labels: Labels, ports: list[JSON], endpoints: list[JSON]) -> Wanted:
    labels = {**labels, **service_labels(at), _SERVICE_OF_SLICE: at.name, _MANAGED_BY: DPU_SERVICE_MANAGER}
    fields = {"addressType": "IPv4", "ports": ports, "endpoints": endpoints}
    return Wanted(at._replace(kind=ENDPOINT_SLICE, name=name), at.key, {}, labels, fields=fields)


def _endpoints(spec: ServiceSpec, observations: Iterable[tuple[str, str]]) -> Iterator[JSON]:
    """The DPUs that run the service, by the name of their node."""
    selects = node_selects(spec.service_daemon_set.node_selector)
    for _, text in observations:
        node = _decoded(_node, text)
        if node is None or node.deleting or not selects(node.labels):
            continue
        host = node.labels.get(DPU_NODE_NAME) or node.labels.get(HOST)
        address = next((each.address for each in node.addresses if _is_reachable(each)), None)
        if host and address is not None:
            yield {"addresses": [address], "conditions": {"ready": True}, "nodeName": host}


def _is_reachable(each: _Address) -> bool:
    if each.type != _INTERNAL_IP:
        return False
    try:
        IPv4Address(each.address)
    except AddressValueError:
        return False
    return True


def _decoded(decoder: msgspec.json.Decoder[Any], text: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.MsgspecError:
        return None
