"""A search for BMCs of DPUs in a range of addresses, as a DPUDiscovery states it, and the objects of a found DPU."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from projections.resources.durations import duration_ms
from projections.resources.kinds import DPU_DEVICE, DPU_NODE
from projections.resources.observation import Observation
from projections.resources.specs import JSON, Labels, Spec, read
from projections.resources.state import Resource
from schemas.resources.dpf.names import DPU_ENABLED, DPU_NODE_NAME

ADDRESSES_MAX = 65_536
"""Maximum number of addresses of one search: with WORKERS_MAX workers and one second per address, four minutes."""
WORKERS_MAX = 256
ADDRESSES_PER_WORKER = 255
INTERVAL_MS_MIN = 10_000
SCANNING = "Scanning"
SCANNED = "Scanned"

BMC_ADDRESS = "dpuplane.io/bmc-address"
"""Annotation of a DPUDevice: where its BMC is, in the form of `dpuplane dpus register --bmc-address`."""
DISCOVERED_AT = "dpuplane.io/discovered-at"
"""Annotation of a DPUDevice: the address and port at which a search found its BMC."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,60}[a-z0-9])?")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Probed(NamedTuple):
    """A DPU as its BMC identifies it. `bmc_address` is empty if it follows from the address that was probed."""

    serial: str
    bmc_address: str = ""


class Search(NamedTuple):
    """A search: the addresses from the first to the last one, both included."""

    first: Address
    last: Address
    port: int
    interval_ms: int
    workers: int

    @property
    def address_count(self) -> int:
        return int(self.last) - int(self.first) + 1

    def addresses(self) -> Iterator[str]:
        """All addresses in order."""
        kind = type(self.first)
        return (str(kind(number)) for number in range(int(self.first), int(self.last) + 1))


class _IPRange(Spec, frozen=True):
    start_ip: str = msgspec.field(default="", name="startIP")
    end_ip: str = msgspec.field(default="", name="endIP")
    port: int = 443


class _IPRangeSpec(Spec, frozen=True):
    ip_range: _IPRange = _IPRange()


class _DPUDiscoverySpec(Spec, frozen=True):
    ip_range_spec: _IPRangeSpec = _IPRangeSpec()
    scan_interval: str = "1h"
    workers: int | None = None


class _FoundSpec(Spec, frozen=True):
    """The fields of a DPUDevice that say where its BMC is."""

    bmc_ip: str | None = None
    bmc_port: int = 443


class DiscoveredObject(NamedTuple):
    """An object of a found DPU, without its source and namespace."""

    kind: str
    name: str
    labels: Labels
    annotations: Labels
    spec: JSON


def search_of(row: Resource) -> Search | str:
    """The search that a DPUDiscovery states, or its fault."""
    spec = read(_DPUDiscoverySpec, row)
    if isinstance(spec, str):
        return spec
    given = spec.ip_range_spec.ip_range
    try:
        first, last = ipaddress.ip_address(given.start_ip), ipaddress.ip_address(given.end_ip)
    except ValueError as error:
        return f"spec.ipRangeSpec.ipRange: {error}"
    interval_ms = duration_ms(spec.scan_interval)
    if interval_ms is None:
        return f"spec.scanInterval: {spec.scan_interval[:40]!r} is not a duration such as 90s or 1h"
    if first.version != last.version or int(first) > int(last):
        return f"spec.ipRangeSpec.ipRange.endIP: {last} does not come after {first}"
    count = int(last) - int(first) + 1
    if count > ADDRESSES_MAX:
        return f"spec.ipRangeSpec.ipRange: it has {count} addresses, more than the {ADDRESSES_MAX} allowed"
    workers = spec.workers or -(-count // ADDRESSES_PER_WORKER)
    return Search(first, last, given.port, max(interval_ms, INTERVAL_MS_MIN), max(1, min(workers, WORKERS_MAX)))


def endpoint(address: str, port: int) -> str:
    """An address with a port, as in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def endpoints_of(row: Resource) -> Iterator[str]:
    """Where the BMC of a DPUDevice is known to be."""
    if found := row.annotations.get(DISCOVERED_AT):
        yield found
    spec = read(_FoundSpec, row)
    if not isinstance(spec, str) and spec.bmc_ip:
        yield endpoint(spec.bmc_ip, spec.bmc_port)


def objects_of(probed: Probed, address: str, port: int, *, with_node: bool) -> list[DiscoveredObject] | str:
    """The DPUDevice of a found DPU, named by its serial number, and its DPUNode if wanted; or why it has no name."""
    name = probed.serial.lower()
    if not _NAME.fullmatch(name):
        return f"the serial number {probed.serial[:40]!r} cannot be the name of an object"
    spec: JSON = {"serialNumber": probed.serial, "bmcPort": port}
    if ":" not in address:
        spec["bmcIp"] = address
    annotations = {DISCOVERED_AT: endpoint(address, port)}
    if probed.bmc_address:
        annotations[BMC_ADDRESS] = probed.bmc_address
    if not with_node:
        return [DiscoveredObject(DPU_DEVICE, name, {}, annotations, spec)]
    node = f"dpu-node-{name}"
    host: JSON = {"nodeRebootMethod": {"external": {}}, "dpus": [{"name": name}]}
    return [
        DiscoveredObject(DPU_DEVICE, name, {DPU_NODE_NAME: node}, annotations, spec),
        DiscoveredObject(DPU_NODE, node, {DPU_ENABLED: "true"}, {}, host),
    ]


def due_ms(search: Search, generation: int, seen: Observation | None) -> int:
    """The time of the next search: at once if this generation of the object has not been searched for yet."""
    if seen is None:
        return 0
    fields = seen.fields
    if fields.get("generation") != generation:
        return 0
    if seen.phase == SCANNING:
        return int(fields.get("endMs", 0))
    return int(fields.get("scannedMs", 0)) + search.interval_ms


def faults_text(faults: Sequence[str]) -> str:
    """Faults of a search in one sentence; the first few are named."""
    if not faults:
        return ""
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return f"{len(faults)} addresses answered without a usable DPU: {'; '.join(faults[:3])}{more}"
