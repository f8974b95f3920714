"""Conditions of DPUServices, chains, interfaces, address pools, networks and credential requests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from projections.resources.blame import Blame
from projections.resources.clusters import selected_clusters
from projections.resources.conditions.condition import Condition, condition, with_ready
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
            condition("ApplicationPrereqsReconciled", _clusters(key, spec, world, needed=not spec.deploy_in_cluster)),
            condition("ApplicationsReady", _some(world.unready(key, "has no application that was seen healthy yet"))),
        ]
    )


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
            condition("ServiceChainSetReady", (*open_ports, *_some(world.unready(key, _NOT_APPLIED)))),
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
            condition(f"{aspect}Ready", _some(world.unready(key, _NOT_APPLIED))),
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


_NOT_APPLIED = "has not been applied in each DPU cluster yet"


def _reconciled(aspect: str, key: str, spec: ClusterSelecting, world: World) -> Condition:
    """The condition that an object can be applied in the DPU clusters that it is for."""
    has_fault = key in world.derivation.in_clusters.faults
    return condition(aspect, _clusters(key, spec, world), "Error" if has_fault else "Pending")


def _clusters(key: str, spec: ClusterSelecting, world: World, *, needed: bool = True) -> Iterator[Blame]:
    """The blames on the DPU clusters of an object."""
    if not needed:
        return
    if fault := world.derivation.in_clusters.faults.get(key):
        yield Blame(key, f"{short_name(key)} is for no DPU cluster, because its spec has a fault: {fault}")
        return
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
    at, own = object_id(key), world.stated(key)
    if own is None or world.wanted(key) is not None:
        return None
    for other in world.state.of_kind(at.source, DPU_SERVICE):
        row, spec = world.stated(other), world.read(other, ServiceSpec)
        if (
            row is None
            or other == key
            or object_id(other).namespace != at.namespace
            or not isinstance(spec, ServiceSpec)
        ):
            continue
        if name in (spec.interfaces or ()) and (row.created_ms, other) < (own.created_ms, key):
            return other
    return None


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
