"""The interfaces, chains and address pools of a source in the form in which documents are made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from projections.label_selectors import LabelSelector
from projections.resources.clusters import clusters_with
from projections.resources.derivation import Derivation
from projections.resources.kinds import DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, DPU_SERVICE_IPAM
from projections.resources.network_documents.document import BRIDGE, Interface
from projections.resources.selectors import compiled
from projections.resources.service_specs import (
    ChainSetSpec,
    ChainSwitch,
    ClusterSelecting,
    InterfaceSetSpec,
    InterfaceSpec,
    IPAMSpec,
    ServiceSpec,
    SetSpec,
)
from projections.resources.specs import JSON, Labels, Read, read
from projections.resources.state import Resource, ResourcesState, object_id
from schemas.resources.dpf.names import CUSTOM_FLOWS, FIREFLY
from schemas.resources.dpf.networks import IPAM_CHILD_NAME

_OVN_BRIDGE = "br-ovn"


class Where(NamedTuple):
    """The nodes of an object: those with these labels, in the DPU clusters that `selector` selects now."""

    selector: LabelSelector
    clusters: frozenset[str]
    nodes: LabelSelector = ()


class StatedInterface(NamedTuple):
    """An interface with its labels."""

    key: str
    where: Where
    labels: Labels
    interface: Interface


class StatedChain(NamedTuple):
    """The switches of a chain."""

    key: str
    where: Where
    switches: tuple[ChainSwitch, ...]


class StatedPool(NamedTuple):
    """An address pool by its name and labels, which all nodes of its DPU clusters have."""

    name: str
    where: Where
    labels: Labels


class StatedNetworks(NamedTuple):
    """The interfaces, chains and pools of one source, sorted by key, and the fault of each object that is left out. The
    value depends on the objects alone, not on the order in which they came."""

    interfaces: tuple[StatedInterface, ...] = ()
    chains: tuple[StatedChain, ...] = ()
    pools: tuple[StatedPool, ...] = ()
    faults: Mapping[str, str] = MappingProxyType({})


Stated = TypeVar("Stated", StatedInterface, StatedChain, StatedPool)


def in_clusters(networks: StatedNetworks, clusters_of: Callable[[LabelSelector], Iterable[str]]) -> StatedNetworks:
    """The networks in the DPU clusters that `clusters_of` gives for each selector."""

    def moved(found: Stated) -> Stated:
        clusters = frozenset(clusters_of(found.where.selector))
        return found._replace(where=found.where._replace(clusters=clusters))

    interfaces, chains = tuple(map(moved, networks.interfaces)), tuple(map(moved, networks.chains))
    return networks._replace(interfaces=interfaces, chains=chains, pools=tuple(map(moved, networks.pools)))


def stated_networks(state: ResourcesState, derivation: Derivation, source: str) -> StatedNetworks:
    """The networks of a source, as their deployments want them, else as they are stated."""
    faults: dict[str, str] = {}
    of_ptp = _ptp_services(state, derivation, source)
    interfaces = _usable(
        partial(_interface, of_ptp), _rows(state, derivation, source, DPU_SERVICE_INTERFACE), state, faults
    )
    chains = _usable(_chain, _rows(state, derivation, source, DPU_SERVICE_CHAIN), state, faults)
    pools = _usable(_pool, _rows(state, derivation, source, DPU_SERVICE_IPAM), state, faults)
    return StatedNetworks(tuple(interfaces), tuple(chains), tuple(pools), faults)


def short(key: str) -> str:
    """The name of an object in a document: its namespace and name, as in DPF's `dpf-id` of a port."""
    at = object_id(key)
    return f"{at.namespace}/{at.name}"


def _rows(state: ResourcesState, derivation: Derivation, source: str, kind: str) -> Iterator[tuple[str, Resource]]:
    keys = {*state.of_kind(source, kind), *derivation.children.of_kind(source, kind)}
    for key in sorted(keys):
        row = derivation.effective_row(key, state)
        if row is not None:
            yield key, row


def _usable(
    read_row: Callable[[str, Resource, ResourcesState], Stated | str],
    rows: Iterable[tuple[str, Resource]],
    state: ResourcesState,
    faults: dict[str, str],
) -> list[Stated]:
    """The readable ones of these objects; the faults of the others are added to `faults`."""
    usable: list[Stated] = []
    for key, row in rows:
        found = read_row(key, row, state)
        if isinstance(found, str):
            faults[key] = found
        else:
            usable.append(found)
    return usable


def _ptp_services(state: ResourcesState, derivation: Derivation, source: str) -> frozenset[str]:
    """The ids of the services that synchronize clocks: DPF knows them by a label of their pods."""
    found = set()
    for _, row in _rows(state, derivation, source, DPU_SERVICE):
        spec = read(ServiceSpec, row)
        if not isinstance(spec, str) and (spec.service_daemon_set.labels or {}).get(CUSTOM_FLOWS) == FIREFLY:
            found.add(spec.service_id or "")
    return frozenset(found - {""})


def _interface(of_ptp: frozenset[str], key: str, row: Resource, state: ResourcesState) -> StatedInterface | str:
    spec = read(SetSpec, row)
    if isinstance(spec, str):
        return spec
    inner = _converted(spec.template.spec, InterfaceSetSpec)
    if isinstance(inner, str):
        return inner
    where = _where(state, key, spec, inner.node_selector)
    if isinstance(where, str):
        return where
    found = inner.template.spec
    settings = _settings(spec.template.spec, found.interface_type)
    if settings is None:
        return f"interfaceType is {found.interface_type!r}, and the field of this name is missing"
    labels = (inner.template.metadata.labels if inner.template.metadata else None) or {}
    is_ptp = found.interface_type == "service" and settings.get("serviceID") in of_ptp
    interface = Interface(short(key), found.interface_type, _port(found), settings=settings, ptp=is_ptp)
    return StatedInterface(key, where, labels, interface)


def _settings(spec: JSON, kind: str) -> JSON | None:
    """The settings of an interface's type: everything of it that is not expressed otherwise."""
    found = spec.get("template", {}).get("spec", {}).get(kind)
    if kind == "ovn":
        return {"peerBridge": (found or {}).get("externalBridge") or _OVN_BRIDGE}
    return found if isinstance(found, dict) and kind else None


def _port(spec: InterfaceSpec) -> str:
    """The name of the port of an interface, by DPF's rules; empty where only the agent knows it."""
    match spec.interface_type:
        case "physical" if spec.physical:
            return spec.physical.interface_name
        case "pf" if spec.pf:
            return f"pf{spec.pf.pf_id}hpf"
        case "vf" if spec.vf:
            return f"pf{spec.vf.pf_id}vf{spec.vf.vf_id}"
        case "ovn":
            return f"puplink{BRIDGE.replace('-', '')}"
    return ""


def _chain(key: str, row: Resource, state: ResourcesState) -> StatedChain | str:
    spec = read(SetSpec, row)
    if isinstance(spec, str):
        return spec
    inner = _converted(spec.template.spec, ChainSetSpec)
    if isinstance(inner, str):
        return inner
    where = _where(state, key, spec, inner.node_selector)
    return where if isinstance(where, str) else StatedChain(key, where, inner.template.spec.switches)


def _pool(key: str, row: Resource, state: ResourcesState) -> StatedPool | str:
    spec = read(IPAMSpec, row)
    if isinstance(spec, str):
        return spec
    where = _where(state, key, spec, None)
    if isinstance(where, str):
        return where
    labels = (spec.metadata.labels if spec.metadata else None) or {}
    return StatedPool(row.annotations.get(IPAM_CHILD_NAME) or object_id(key).name, where, labels)


def _where(state: ResourcesState, key: str, spec: ClusterSelecting, node_selector: JSON | None) -> Where | str:
    """Where an object is, or the fault of one of its selectors."""
    selector, nodes = compiled(spec.clusters), compiled(node_selector)
    if isinstance(selector, str) or isinstance(nodes, str):
        return selector if isinstance(selector, str) else str(nodes)
    return Where(selector, frozenset(clusters_with(state, object_id(key).source, selector)), nodes)


def _converted(spec: JSON, kind: type[Read]) -> Read | str:
    try:
        return msgspec.convert(spec, kind)
    except msgspec.ValidationError as error:
        return f"template.spec: {error}"
