"""The ports of a network document on a bridge of Open vSwitch: which ones to make, and what the others wait for. Pure.

Ports of physical, PF, VF and patch interfaces are made unless the bridge has them; a port that is there already belongs
to whoever made it, and is used as it is. Ports of services are made by the CNI plugin of their pods, and found by its
external id `dpf-id`. An interface of a VLAN has no port of its own: its packets are the tagged ones of its parent's.

The external id `dpuplane-bridge` of a port tells for which bridge it was made. Ports without it are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from drivers.openflow.chain_flows import Endpoint
from drivers.ovsdb.operations import WantedPort, adaptation, insertion, removal
from drivers.ovsdb.session import Operation
from drivers.ovsdb.tables import Bridge, Port, SwitchRows
from projections.field_checks import quoted
from projections.resources.network_documents.document import Document, Interface

OWNER_ID = "dpuplane-bridge"
DPF_ID = "dpf-id"
SERVICE_ID = "svc.dpu.nvidia.com/service"
VLAN_MAX = 4094


class PortPlan(NamedTuple):
    """The ports of a document on a bridge. Operations that make or change ports come before the flows of the document,
    and those that remove ports after them: the old flows use the old ports until then."""

    makes: tuple[Operation, ...]
    removes: tuple[Operation, ...]
    endpoints: Mapping[str, Endpoint]
    """Where the interfaces of the document are."""
    waiting: Mapping[str, str]
    """What the other interfaces wait for, as the rest of a sentence."""


class _Waits(NamedTuple):
    reason: str


def plan_ports(document: Document, rows: SwitchRows, bridge: Bridge) -> PortPlan:
    """The plan of a document for a bridge of a switch."""
    planning = _Planning(document, rows, bridge)
    places = {each.name: planning.place(each) for each in document.interfaces}
    removes = [
        removal(on.uuid, port)
        for on in rows.bridges.values()
        for port in on.ports.values()
        if port.port_ids.get(OWNER_ID) == bridge.name and (on.name, port.name) not in planning.wanted
    ]
    return PortPlan(
        tuple(planning.makes),
        tuple(removes),
        {name: found for name, found in places.items() if isinstance(found, Endpoint)},
        {name: found.reason for name, found in places.items() if isinstance(found, _Waits)},
    )


class _Planning:
    """The ports of one document: those that are `wanted`, by bridge and name, and the operations that make them."""

    def __init__(self, document: Document, rows: SwitchRows, bridge: Bridge) -> None:
        self.makes: list[Operation] = []
        self.wanted: set[tuple[str, str]] = set()
        self._rows = rows
        self._bridge = bridge
        self._interfaces = {each.name: each for each in document.interfaces}
        self._mtus = _mtus(document, self._interfaces)

    def place(self, interface: Interface) -> Endpoint | _Waits:
        """Where an interface is, or what it waits for."""
        match interface.type:
            case "physical" | "pf" | "vf":
                return self._function(interface)
            case "patch" | "ovn":
                return self._patch(interface)
            case "service":
                return self._service(interface)
            case "vlan":
                return self._vlan(interface)
        return _Waits(f"an agent that knows the type {interface.type}")

    def _function(self, interface: Interface) -> Endpoint | _Waits:
        is_dpdk = self._rows.has_dpdk and self._bridge.datapath == "netdev"
        kinds = {"dpf-type": "physical"} if interface.type == "physical" else {}
        mtu = self._mtus[interface.port]
        wanted = WantedPort(
            interface.port, "dpdk" if is_dpdk else "", mtu, port_ids=kinds, ids={DPF_ID: interface.name}
        )
        return self._port(self._bridge, wanted, f"the device {interface.port} to exist")

    def _patch(self, interface: Interface) -> Endpoint | _Waits:
        peer = str(interface.settings.get("peerBridge", ""))
        if peer not in self._rows.bridges or peer == self._bridge.name:
            return _Waits(f"the bridge {peer} to exist")
        own, other = patch_names(interface, self._bridge.name, peer)
        far_ids = _strings(interface.settings.get("peerExternalIDs"))
        near = WantedPort(own, "patch", options={"peer": other}, ids={DPF_ID: interface.name})
        far = WantedPort(other, "patch", options={"peer": own}, ids=far_ids)
        there = self._port(self._rows.bridges[peer], far, f"the port {other} of the bridge {peer}")
        here = self._port(self._bridge, near, f"the port {own}")
        return there if isinstance(there, _Waits) else here

    def _port(self, bridge: Bridge, wanted: WantedPort, awaited: str) -> Endpoint | _Waits:
        """Have a bridge have a port, unless another program has made it."""
        owner = self._rows.bridge_of.get(wanted.name, bridge.name)
        if owner != bridge.name:
            return _Waits(f"the bridge {owner} to release the port {wanted.name}")
        if (other := self._rows.port_of_interface.get(wanted.name)) is not None:
            # The database would refuse the whole transaction: an interface has one name in all of it.
            return _Waits(f"the port {other} to release the interface {wanted.name}")
        is_known = (bridge.name, wanted.name) in self.wanted
        self.wanted.add((bridge.name, wanted.name))
        present = bridge.ports.get(wanted.name)
        owned = wanted._replace(port_ids={**wanted.port_ids, OWNER_ID: self._bridge.name})
        if present is None:
            if wanted.name in self._rows.bridge_of:
                return _Waits(f"the port {wanted.name} to have one interface: it is a bond")
            if not is_known:
                self.makes += insertion(bridge.uuid, owned, len(self.wanted))
            return _Waits(awaited)
        if present.port_ids.get(OWNER_ID) == self._bridge.name:
            self.makes += [] if is_known else adaptation(present, owned)
        elif wanted.type == "patch" and (present.type, present.options) != ("patch", wanted.options):
            return _Waits(f"another program's port {wanted.name} of the bridge {bridge.name} to go")
        return Endpoint(present.number) if present.number else _Waits(awaited)

    def _service(self, interface: Interface) -> Endpoint | _Waits:
        namespace, name = interface.name.partition("/")[0], _end(interface)
        found = self._ports_of_pods(interface, namespace, name)
        if len(found) > 1:
            names = " and ".join(sorted(port.name for port in found[:2]))
            return _Waits(f"one of the ports {names} to go: both have {DPF_ID}={namespace}/POD/{name}")
        port = found[0] if found else self._bridge.ports.get(f"p{name}brsfc")  # the port of an interface of HBN
        if port is None or not port.number:
            return _Waits(f"a port with the external id {DPF_ID}={namespace}/POD/{name}")
        return Endpoint(port.number)

    def _ports_of_pods(self, interface: Interface, namespace: str, name: str) -> list[Port]:
        """The ports that may be this interface of a service. Unless the CNI plugin names the service, an interface that
        several services of the namespace have is found by the name of the pod."""
        service = str(interface.settings.get("serviceID", ""))
        candidates = [port for port in self._bridge.ports.values() if _of_pod(port, namespace, name) is not None]
        exact = [port for port in candidates if _service_of(port) == service]
        if exact:
            return exact
        unnamed = [port for port in candidates if _service_of(port) is None]
        if not self._is_shared(interface, namespace, name):
            return unnamed
        return [port for port in unnamed if f"{_of_pod(port, namespace, name)}-".startswith(f"{service}-")]

    def _is_shared(self, interface: Interface, namespace: str, name: str) -> bool:
        return any(
            other.name != interface.name
            and other.type == "service"
            and other.name.partition("/")[0] == namespace
            and _end(other) == name
            for other in self._interfaces.values()
        )

    def _vlan(self, interface: Interface) -> Endpoint | _Waits:
        number, parent = interface.settings.get("vlanID"), _parent(interface, self._interfaces)
        if not isinstance(number, int) or not 0 < number <= VLAN_MAX:
            return _Waits(f"a VLAN from 1 to {VLAN_MAX}; it has {quoted(str(number))}")
        if isinstance(parent, Interface):
            at = _Waits(f"{parent.name} to be no VLAN itself") if parent.type == "vlan" else self.place(parent)
            return at._replace(vlan=number) if isinstance(at, Endpoint) else at
        port = self._bridge.ports.get(parent)
        return Endpoint(port.number, number) if port is not None and port.number else _Waits(f"a port {parent}")


def patch_names(interface: Interface, bridge: str, peer: str) -> tuple[str, str]:
    """The names of the ports of a patch, on the bridge and on the other one, by DPF's rules."""
    if interface.type == "ovn":
        return interface.port, f"puplink{peer.replace('-', '')}"
    suffix = blake2b(interface.name.encode(), digest_size=4).hexdigest()
    given = interface.settings.get("peerPatchName")
    return f"p_{bridge}_to_{peer}_{suffix}", str(given or f"p_{peer}_to_{bridge}_{suffix}")


def _mtus(document: Document, interfaces: Mapping[str, Interface]) -> dict[str, int]:
    """The MTU of each port by its name: the largest one of its interfaces and their VLANs."""
    found: dict[str, int] = {}
    for each in document.interfaces:
        parent = _parent(each, interfaces) if each.type == "vlan" else each
        if isinstance(parent, Interface) and parent.port:
            found[parent.port] = max(each.mtu, found.get(parent.port, 0))
    return found


def _parent(interface: Interface, interfaces: Mapping[str, Interface]) -> Interface | str:
    """The interface that carries a VLAN, or the name of its port."""
    name = str(interface.settings.get("parentInterfaceRef", ""))
    return interfaces.get(f"{interface.name.partition('/')[0]}/{name}") or interfaces.get(name) or name


def _end(interface: Interface) -> str:
    """The name of a service's interface in its pod."""
    return str(interface.settings.get("interfaceName", ""))


def _of_pod(port: Port, namespace: str, name: str) -> str | None:
    """The pod of a port that is this interface of a pod of the namespace."""
    words = port.ids.get(DPF_ID, "").split("/")
    return words[1] if len(words) == 3 and (words[0], words[2]) == (namespace, name) else None


def _service_of(port: Port) -> str | None:
    return port.ids.get(SERVICE_ID) or port.port_ids.get(SERVICE_ID)


def _strings(found: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
