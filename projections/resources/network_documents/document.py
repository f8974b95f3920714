"""The content of a network document, and its canonical bytes.

The bytes are JSON with sorted keys and without absent fields. They are what the digest covers, what the log and the
agent store, and what an operator reads: a format with a schema of its own would need that schema on every agent. DPUs
with equal content share one document, so it names no DPU, and no address that is given to one DPU only.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

BRIDGE = "br-sfc"
"""The bridge of interfaces and chains on a DPU, by DPF's name."""
DEFAULT_MTU = 1500
DIGEST_BYTES = 16
MAX_DOCUMENT_BYTES = 128 * 1024
"""Maximum size of a document: it must fit in one record, beside the names of its DPUs."""


class Interface(msgspec.Struct, frozen=True, omit_defaults=True):
    """An interface on the bridge. `port` is the name of its port, empty if the agent finds the port by `settings`,
    which are those of the interface's type in the DPUServiceInterface. `mtu` is the largest one of its switches. `ptp`
    says that a service exchanges PTP messages with the physical interface of its switch."""

    name: str
    type: str
    port: str = ""
    mtu: int = DEFAULT_MTU
    settings: dict[str, Any] = {}
    ptp: bool = False


class Addresses(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The pools that the addresses of a port come from, and whether they give its routes."""

    pools: tuple[str, ...] = ()
    default_gateway: bool = False
    set_default_route: bool = False


class SwitchPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a switch: an interface of the document."""

    interface: str
    addresses: Addresses | None = None


class Switch(msgspec.Struct, frozen=True):
    """Interfaces that are connected with each other, by the chain and the number of the switch there."""

    chain: str
    number: int
    mtu: int
    ports: tuple[SwitchPort, ...]


class PtpInterfaces(NamedTuple):
    """The interfaces of a switch between which PTP messages go, by name: services that synchronize clocks, and
    physical interfaces."""

    services: list[str]
    uplinks: list[str]

    @property
    def pair(self) -> tuple[str, str] | None:
        """The service and the physical interface that exchange messages; None unless there is exactly one of each."""
        return (self.services[0], self.uplinks[0]) if len(self.services) == len(self.uplinks) == 1 else None


def ptp_interfaces(switch: Switch, interfaces: Mapping[str, Interface]) -> PtpInterfaces:
    """The interfaces of a switch that concern PTP. `interfaces` has those of the document by name."""
    own = [interfaces[port.interface] for port in switch.ports if port.interface in interfaces]
    services = [each.name for each in own if each.ptp]
    return PtpInterfaces(services, [each.name for each in own if each.type == "physical"])


class Document(msgspec.Struct, frozen=True):
    """The network of a DPU."""

    bridge: str = BRIDGE
    interfaces: tuple[Interface, ...] = ()
    switches: tuple[Switch, ...] = ()


class NetworkDocument(NamedTuple):
    """An encoded document. `parts` are the keys of the objects that it consists of, each with the interfaces that it
    needs. `faults` tells why parts of some objects are left out. A document that is too large has no text: its DPUs
    keep the one that they have."""

    text: str
    digest: str
    parts: Mapping[str, frozenset[str]] = {}
    faults: Mapping[str, tuple[str, ...]] = {}


def encoded(
    document: Document,
    parts: Mapping[str, frozenset[str]] | None = None,
    faults: Mapping[str, tuple[str, ...]] | None = None,
) -> NetworkDocument:
    """The canonical bytes of a document, as text."""
    text = msgspec.json.encode(document, order="sorted").decode()
    return NetworkDocument(text, digest_of(text), parts or {}, faults or {})


def awaited(interface: Interface) -> str:
    """The thing that brings the port of an interface: an interface without a port waits for it."""
    settings = interface.settings
    match interface.type:
        case "service":
            return f"a pod of service {settings.get('serviceID')} with the interface {settings.get('interfaceName')}"
        case "patch" | "ovn":
            return f"the bridge {settings.get('peerBridge')}"
        case "vlan":
            return f"the interface {settings.get('parentInterfaceRef')}"
    return f"the device {interface.port}"


def digest_of(text: str) -> str:
    """The digest of a document as hexadecimal digits."""
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


NO_NETWORK = encoded(Document())
"""The document of a DPU that no interface and no chain selects."""
