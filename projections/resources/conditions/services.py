"""Conditions of DPUServices, chains, interfaces, address pools, networks and credential requests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from projections.resources.blame import Blame
from projections.resources.charts import is_current, is_read
from projections.resources.clusters import selected_clusters
from projections.resources.conditions.applications import applications_ready, applications_reconciled
from projections.resources.conditions.condition import Condition, condition, with_ready
from projections.resources.conditions.config_ports import config_ports_reconciled
from projections.resources.conditions.in_clusters import unready_in_clusters
from projections.resources.conditions.on_dpus import unready_on_dpus
from projections.resources.conditions.world import World
from projections.resources.kinds import DPU_CLUSTER, DPU_SERVICE, DPU_SERVICE_INTERFACE, short_name
from projections.resources.service_specs import (
    ChainSetSpec,
    ClusterSelecting,
    CredentialRequestSpec,
    InterfaceSetSpec,
    ServiceSpec,
    SetSpec,
)
from projections.resources.specs import JSON, Read
from projections.resources.state import ObjectId, object_id

_NO_ANSWER = "has not answered yet"


def of_service(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUService: its interfaces are its own, and its applications are healthy in each DPU cluster."""
    spec = world.read(key, ServiceSpec)
    if not isinstance(spec, ServiceSpec):
        return _unreadable(key, "ApplicationPrereqsReconciled", spec)
    interfaces = [blame for name in spec.interfaces or () for blame in _faults_of_interface(key, name, spec, world)]
    return with_ready(
        [
            condition("DPUServiceInterfaceReconciled", interfaces, "Error"),
            condition("ApplicationPrereqsReconciled", () if spec.deploy_in_cluster else _answering(key, spec, world)),
            applications_reconciled(key, world),
            applications_ready(key, world),
            config_ports_reconciled(key, spec, world),
        ]
    )


def of_template(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUServiceTemplate: the versions that its chart needs are read, if a process reads charts."""
    row, seen = world.stated(key), world.observed.get(key)
    if row is None:
        return _unreadable(key, "DPUServiceTemplateReconciled", None)
    unread = seen is not None and is_read(row) and is_current(row, seen) and not seen.is_ready
    blames = [Blame(key, f"the chart of {short_name(key)} cannot be read: {seen.message}")] if seen and unread else []
    return with_ready([condition("DPUServiceTemplateReconciled", blames, "Error")])


def of_chain(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUServiceChain: each port has an interface."""
    spec = world.read(key, SetSpec)
    if not isinstance(spec, SetSpec):
        return _unreadable(key, "ServiceChainSetReconciled", spec)
    found = _converted(spec.template.spec, ChainSetSpec)
    known = _interface_labels(key, world)
    open_ports = []
    for number, switch in enumerate(found.template.spec.switches if found else ()):
        for port in switch.ports:
            labels = (port.service_interface.match_labels if port.service_interface else None) or {}
            if not any(labels.items() <= each.items() for each in known):
                text = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
                open_ports.append(
                    Blame(key, f"no DPUServiceInterface has the labels {text} of a port of switch {number}")
                )
    return with_ready(
        [
            _reconciled("ServiceChainSetReconciled", key, spec, world),
            condition(
                "ServiceChainSetReady", (*open_ports, *unready_in_clusters(key, world), *unready_on_dpus(key, world))
            ),
        ]
    )


def of_set(aspect: str, key: str, world: World) -> tuple[Condition, ...]:
    """An object that becomes one object in each DPU cluster; `aspect` begins its conditions, as in
    `ServiceInterfaceSetReconciled`."""
    spec = world.read(key, ClusterSelecting)
    if not isinstance(spec, ClusterSelecting):
        return _unreadable(key, f"{aspect}Reconciled", spec)
    return with_ready(
        [
            _reconciled(f"{aspect}Reconciled", key, spec, world),
            condition(f"{aspect}Ready", (*unready_in_clusters(key, world), *unready_on_dpus(key, world))),
        ]
    )


def of_request(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUServiceCredentialRequest: the cluster that it is for exists and answers."""
    spec = world.read(key, CredentialRequestSpec)
    if not isinstance(spec, CredentialRequestSpec):
        return _unreadable(key, "ServiceAccountReconciled", spec)
    target, at = spec.target_cluster, object_id(key)
    blame = None
    if target is not None:
        cluster = ObjectId(at.source, DPU_CLUSTER, target.namespace or "default", target.name).key
        blame = world.unready(cluster, _NO_ANSWER)
    secret = world.unready(key, "has no Secret yet")
    return with_ready(
        [condition("ServiceAccountReconciled", _some(blame)), condition("SecretReconciled", _some(secret))]
    )


def _reconciled(aspect: str, key: str, spec: ClusterSelecting, world: World) -> Condition:
    """The condition that an object can be applied in the DPU clusters that it is for."""
    has_fault = key in world.derivation.in_clusters.faults
    return condition(aspect, _clusters(key, spec, world), "Error" if has_fault else "Pending")


def _clusters(key: str, spec: ClusterSelecting, world: World) -> Iterator[Blame]:
    """The blames on an object that cannot be derived, or on its DPU clusters."""
    if fault := world.derivation.in_clusters.faults.get(key):
        yield Blame(key, f"{short_name(key)} is for no DPU cluster, because its spec has a fault: {fault}")
    else:
        yield from _answering(key, spec, world)


def _answering(key: str, spec: ClusterSelecting, world: World) -> Iterator[Blame]:
    """The blames on the DPU clusters of an object."""
    found = selected_clusters(world.state, object_id(key).source, spec.clusters)
    if isinstance(found, str):
        yield Blame(key, f"{short_name(key)} is for no DPU cluster, because its selector has a fault: {found}")
    elif not found:
        yield Blame(key, f"no DPUCluster exists that {short_name(key)} selects")
    else:
        for cluster in found:
            yield from _some(world.unready(cluster, _NO_ANSWER))


def _faults_of_interface(key: str, name: str, spec: ServiceSpec, world: World) -> Iterator[Blame]:
    at = object_id(key)
    interface = ObjectId(at.source, DPU_SERVICE_INTERFACE, at.namespace, name).key
    if blame := world.missing(interface):
        yield blame
        return
    found = world.read(interface, SetSpec)
    inner = _converted(found.template.spec, InterfaceSetSpec) if isinstance(found, SetSpec) else None
    if inner is None or inner.template.spec.interface_type != "service":
        yield Blame(interface, f"{short_name(interface)} is not of type service")
        return
    identity = inner.template.spec.service.service_id if inner.template.spec.service else ""
    if identity != spec.service_id:
        yield Blame(interface, f"{short_name(interface)} is for serviceID {identity!r}, not {spec.service_id!r}")
    if consumer := _older_consumer(key, name, world):
        yield Blame(consumer, f"{short_name(interface)} is used by {short_name(consumer)} already")


def _older_consumer(key: str, name: str, world: World) -> str | None:
    """A stated DPUService that uses an interface and is older than this one."""
    own = world.stated(key)
    if own is None or world.wanted(key) is not None:
        return None
    consumer = consumer_of(object_id(key)._replace(kind=DPU_SERVICE_INTERFACE, name=name).key, world)
    return consumer if consumer is not None and _age(consumer, world) < _age(key, world) else None


def consumer_of(interface: str, world: World) -> str | None:
    """The oldest stated DPUService that uses a DPUServiceInterface."""
    at = object_id(interface)
    services = (
        each for each in world.state.of_kind(at.source, DPU_SERVICE) if object_id(each).namespace == at.namespace
    )
    found = (each for each in services if _uses(each, at.name, world))
    return min(found, key=lambda each: _age(each, world), default=None)


def _uses(service: str, interface: str, world: World) -> bool:
    spec = world.read(service, ServiceSpec)
    return isinstance(spec, ServiceSpec) and interface in (spec.interfaces or ())


def _age(key: str, world: World) -> tuple[int, str]:
    row = world.stated(key)
    return (row.created_ms if row is not None else 0, key)


def _interface_labels(key: str, world: World) -> list[dict[str, str]]:
    """The labels of the interfaces of all DPUServiceInterfaces of the namespace."""
    at = object_id(key)
    stated = world.state.of_kind(at.source, DPU_SERVICE_INTERFACE)
    wanted = [each for each in world.derivation.children.winners if object_id(each).kind == DPU_SERVICE_INTERFACE]
    labels = []
    for each in dict.fromkeys((*stated, *wanted)):
        other = object_id(each)
        is_near = (other.source, other.namespace) == (at.source, at.namespace)
        spec = world.read(each, SetSpec) if is_near else None
        inner = _converted(spec.template.spec, InterfaceSetSpec) if isinstance(spec, SetSpec) else None
        if inner is not None:
            labels.append((inner.template.metadata.labels if inner.template.metadata else None) or {})
    return labels


def _converted(spec: JSON, kind: type[Read]) -> Read | None:
    try:
        return msgspec.convert(spec, kind)
    except msgspec.ValidationError:
        return None


def _unreadable(key: str, aspect: str, fault: object) -> tuple[Condition, ...]:
    """The conditions of an object whose spec has a fault, or that does not exist."""
    text = f"{short_name(key)} {f'cannot be read: {fault}' if isinstance(fault, str) else 'does not exist'}"
    return with_ready([condition(aspect, [Blame(key, text)], "Error")])


def _some(blame: Blame | None) -> tuple[Blame, ...]:
    return () if blame is None else (blame,)
