"""The document of each DPU, from the networks of its source and the labels of its node.

DPUs whose nodes have the same values of the labels that selectors name share a document, and it is made once. A part
with a fault, such as a port without an interface, is left out, and the rest of the document is as without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from projections.label_selectors import matches
from projections.resources.clusters import in_cluster
from projections.resources.derivation import Derivation
from projections.resources.dpus import allocated_cluster
from projections.resources.kinds import NODE
from projections.resources.network_documents.document import (
    DEFAULT_MTU,
    MAX_DOCUMENT_BYTES,
    NO_NETWORK,
    Addresses,
    Document,
    NetworkDocument,
    Switch,
    SwitchPort,
    encoded,
    ptp_interfaces,
)
from projections.resources.network_documents.stated import (
    StatedChain,
    StatedInterface,
    StatedNetworks,
    StatedPool,
    Where,
    short,
)
from projections.resources.service_specs import ChainPort, PortAddresses
from projections.resources.specs import Labels
from projections.resources.state import ResourcesState, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import HOST

_HOSTNAME = "kubernetes.io/hostname"
_LABEL_MAX = 63
DOCUMENTS_MAX = 10_000
"""Number of remembered documents; beyond it they are made again. Selectors by hostname give each DPU its own."""


class NetworkDocuments:
    """The documents of one source."""

    def __init__(self, networks: StatedNetworks) -> None:
        self.networks = networks
        selecting: list[StatedInterface | StatedChain] = [*networks.interfaces, *networks.chains]
        self._label_keys = tuple(sorted({need.key for each in selecting for need in each.where.nodes}))
        self._found: dict[tuple[str, tuple[str | None, ...]], NetworkDocument] = {}

    def of_node(self, cluster: str, labels: Mapping[str, str]) -> NetworkDocument:
        """The document of a DPU whose node in this DPU cluster has these labels."""
        at = cluster, tuple(labels.get(key) for key in self._label_keys)
        found = self._found.get(at)
        if found is None:
            if len(self._found) >= DOCUMENTS_MAX:
                self._found.clear()
            found = self._found[at] = _document(self.networks, cluster, labels)
        return found


def node_of(state: ResourcesState, derivation: Derivation, dpu: str) -> tuple[str, Labels] | None:
    """The DPU cluster of a wanted DPU, and the labels of its node there: those that were observed, and those that it
    gets. None while no object wants the DPU, or it has no DPU cluster."""
    wanted = derivation.dpus.winners.get(dpu)
    cluster = allocated_cluster(wanted) if wanted is not None else None
    if wanted is None or cluster is None:
        return None
    name = wanted.at.name
    seen = state.seen.get(in_cluster(cluster, NODE, "", name).key)
    observed = seen.fields.get("labels") if seen is not None else None
    labels = observed if isinstance(observed, dict) else {}
    return cluster, {_HOSTNAME: name, **labels, **_wanted_labels(wanted)}


def _wanted_labels(wanted: Wanted) -> Labels:
    host = wanted.spec.get("dpuNodeName") or wanted.spec.get("nodeName") or ""
    own = {HOST: host} if host and len(host) <= _LABEL_MAX else {}
    return own | (wanted.spec.get("cluster", {}).get("nodeLabels") or {})


def _document(networks: StatedNetworks, cluster: str, labels: Mapping[str, str]) -> NetworkDocument:
    interfaces = [each for each in networks.interfaces if _is_on(each.where, cluster, labels)]
    chains = [each for each in networks.chains if _is_on(each.where, cluster, labels)]
    pools = [each for each in networks.pools if _is_on(each.where, cluster, labels)]
    if not interfaces and not chains:
        return NO_NETWORK
    faults: dict[str, tuple[str, ...]] = {}
    switches: list[Switch] = []
    for chain in chains:
        switches += _switches(chain, interfaces, pools, faults)
    mtus: dict[str, int] = {}
    for switch in switches:
        for port in switch.ports:
            mtus[port.interface] = max(switch.mtu, mtus.get(port.interface, 0))
    made = (replace(each.interface, mtu=mtus.get(each.interface.name, DEFAULT_MTU)) for each in interfaces)
    parts = {each.key: frozenset((each.interface.name,)) for each in interfaces}
    for chain in chains:
        own = [switch for switch in switches if switch.chain == short(chain.key)]
        parts[chain.key] = frozenset(port.interface for switch in own for port in switch.ports)
    document = encoded(Document(interfaces=tuple(made), switches=tuple(switches)), parts, faults)
    size = len(document.text.encode())
    if size > MAX_DOCUMENT_BYTES:
        fault = f"the network document of its DPUs would have {size} bytes, more than the {MAX_DOCUMENT_BYTES} allowed"
        return NetworkDocument("", "", parts, dict.fromkeys(parts, (fault,)))
    return document


def _is_on(where: Where, cluster: str, labels: Mapping[str, str]) -> bool:
    return cluster in where.clusters and matches(where.nodes, labels)


def _switches(
    chain: StatedChain,
    interfaces: Iterable[StatedInterface],
    pools: Iterable[StatedPool],
    faults: dict[str, tuple[str, ...]],
) -> list[Switch]:
    """The switches of a chain. The faults of its ports are added to `faults`."""
    namespace = object_id(chain.key).namespace
    near = [each for each in interfaces if object_id(each.key).namespace == namespace]
    found = []
    for number, switch in enumerate(chain.switches):
        ports = []
        for port in switch.ports:
            interface = _interface_of(port, near)
            if isinstance(interface, StatedInterface):
                addresses = port.service_interface.ipam if port.service_interface else None
                ports.append(SwitchPort(interface.interface.name, _addresses(addresses, pools)))
            else:
                faults[chain.key] = (*faults.get(chain.key, ()), f"{interface} of a port of switch {number}")
        found.append(Switch(short(chain.key), number, switch.service_mtu or DEFAULT_MTU, tuple(ports)))
        if fault := _ptp_fault(found[-1], number, near):
            faults[chain.key] = (*faults.get(chain.key, ()), fault)
    return found


def _ptp_fault(switch: Switch, number: int, interfaces: Iterable[StatedInterface]) -> str:
    """Why the service of a switch that synchronizes clocks gets no flows for it; empty if it gets them."""
    found = ptp_interfaces(switch, {each.interface.name: each.interface for each in interfaces})
    services, uplinks = found
    if not services or found.pair is not None:
        return ""
    has = f"has {len(services)} and {len(uplinks)}"
    return f"PTP of {services[0]} needs one PTP service and one physical interface in switch {number}, which {has}"


def _interface_of(port: ChainPort, interfaces: Iterable[StatedInterface]) -> StatedInterface | str:
    """The interface of a port, or the beginning of a sentence about its fault."""
    wanted = (port.service_interface.match_labels if port.service_interface else None) or {}
    found = [each for each in interfaces if wanted.items() <= each.labels.items()]
    if len(found) == 1:
        return found[0]
    text = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
    if not found:
        return f"no DPUServiceInterface of its DPUs has the labels {text}"
    return f"{found[0].interface.name} and {found[1].interface.name} both have the labels {text}"


def _addresses(wanted: PortAddresses | None, pools: Iterable[StatedPool]) -> Addresses | None:
    if wanted is None:
        return None
    labels = (wanted.match_labels or {}).items()
    names = tuple(sorted({pool.name for pool in pools if labels <= pool.labels.items()}))
    return Addresses(names, bool(wanted.default_gateway), bool(wanted.set_default_route))
