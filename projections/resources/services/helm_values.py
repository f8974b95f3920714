"""The Helm values of a DPUService's chart: what the user gives, over the settings of the service's DaemonSet.

Every chart of a service reads `serviceDaemonSet`. Charts of the system's components are parts of one chart, which only
see `global`. Networks come from the interfaces of the service, as an annotation of its pods that Multus reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from projections.resources.deployments.values import merged
from projections.resources.kinds import DPU_SERVICE_INTERFACE
from projections.resources.lookup import Lookup
from projections.resources.service_specs import InterfaceSetSpec, ServiceSpec, SetSpec
from projections.resources.services.naming import service_labels
from projections.resources.specs import JSON, Labels, read, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import digest
from schemas.resources.dpf.names import (
    CLUSTER_NAME,
    CLUSTER_NAMESPACE,
    COMPONENT,
    SERVICE_DAEMON_SET,
    SERVICE_ID,
)

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation of pods: the networks that Multus attaches them to."""


def helm_values(at: ObjectId, spec: ServiceSpec, labels: Labels, cluster: str, lookup: Lookup) -> JSON | str:
    """The values for a cluster of this name, or the fault why they cannot be derived."""
    networks = _networks(at, spec, lookup)
    if isinstance(networks, str):
        return networks
    daemon_set = _daemon_set(at, spec, networks)
    if COMPONENT in labels:
        named = {CLUSTER_NAME: cluster, CLUSTER_NAMESPACE: at.namespace}
        daemon_set = {**daemon_set, "annotations": {**(daemon_set.get("annotations") or {}), **named}}
        settings: JSON = {"global": {SERVICE_DAEMON_SET: daemon_set}}
    else:
        settings = {SERVICE_DAEMON_SET: daemon_set}
    values = merged(spec.helm_chart.values or {}, settings)
    if spec.config_ports is not None:
        ports = {each.name: True for each in spec.config_ports.ports}
        values = merged({"exposedPorts": {"labels": service_labels(at), "ports": ports}}, values)
    return values


def service_id(at: ObjectId, spec: ServiceSpec) -> str:
    """The identity of a service in chains: its own, else one that follows from its name."""
    return spec.service_id or digest(at.kind, at.name, at.namespace)


def _daemon_set(at: ObjectId, spec: ServiceSpec, networks: list[JSON]) -> JSON:
    given = spec.service_daemon_set
    annotations = given.annotations
    if networks:
        text = msgspec.json.encode(networks, order="sorted").decode()
        annotations = {**(annotations or {}), NETWORKS: text}
    return without_absent(
        {
            "nodeSelector": given.node_selector,
            "updateStrategy": given.update_strategy,
            "labels": {**(given.labels or {}), SERVICE_ID: service_id(at, spec)},
            "annotations": annotations,
            "resources": given.resources,
        }
    )


def _networks(at: ObjectId, spec: ServiceSpec, lookup: Lookup) -> list[JSON] | str:
    """The networks of the pods: those of the user's annotation, and one for each interface that it does not name."""
    given = _given_networks(spec)
    if isinstance(given, str):
        return given
    found = {str(each.get("interface", number)): each for number, each in enumerate(given)}
    for interface in _interfaces(at, spec, lookup):
        if isinstance(interface, str):
            return interface
        name = interface["interface"]
        found[name] = {**interface, **found.get(name, {})}
    return [found[name] for name in sorted(found)]


def _given_networks(spec: ServiceSpec) -> list[JSON] | str:
    text = (spec.service_daemon_set.annotations or {}).get(NETWORKS)
    if not spec.interfaces or text is None:
        return []
    try:
        return msgspec.json.decode(text, type=list[JSON])
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError):
        return f"serviceDaemonSet.annotations: {NETWORKS} must be a list of objects in a service with interfaces"


def _interfaces(at: ObjectId, spec: ServiceSpec, lookup: Lookup) -> Iterator[JSON | str]:
    for name in spec.interfaces or ():
        row = lookup.row(ObjectId(at.source, DPU_SERVICE_INTERFACE, at.namespace, name).key)
        if row is None:
            yield f"DPUServiceInterface {at.namespace}/{name} does not exist"
            return
        found = read(SetSpec, row)
        inner = _converted(found.template.spec) if isinstance(found, SetSpec) else None
        end = inner.template.spec.service if inner is not None else None
        if end is None:
            yield f"DPUServiceInterface {at.namespace}/{name} is not of type service"
            return
        namespace, _, network = end.network.rpartition("/")
        yield {"name": network, "namespace": namespace or at.namespace, "interface": end.interface_name}


def _converted(spec: Any) -> InterfaceSetSpec | None:
    try:
        return msgspec.convert(spec, InterfaceSetSpec)
    except msgspec.ValidationError:
        return None
