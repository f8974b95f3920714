"""The content of a handover: the zone of a wanted DPU, its host, its device, and the image to install."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from projections.field_checks import check_name, check_text, check_zone
from projections.resources.blame import Blame
from projections.resources.derivation import Derivation
from projections.resources.devices import HostDevice
from projections.resources.install_identity import image_of, install_identity
from projections.resources.kinds import NODE, short_name
from projections.resources.specs import Labels
from projections.resources.state import ObjectId, ResourcesState
from projections.zones.dpus.install_interfaces import INTERFACES, check_bmc_address

ZONE_LABEL = "topology.kubernetes.io/rack"
"""Label of a DPUNode, or of its Node: the zone of the host and its DPUs."""
FALLBACK_ZONE = "unassigned"
"""The zone of a host without a valid label."""
BMC_ADDRESS = "dpuplane.io/bmc-address"
"""Annotation of a DPUDevice: the address of its BMC, such as `simulated:dpu-1`."""
NODE_BMC_ADDRESS = "dpuplane.io/dpu-{}-bmc-address"
"""Annotation of a Node whose labels state its DPUs, as in release 24.10: the address of the BMC of one of them."""
_REDFISH = "redfish"


class DpuForZone(NamedTuple):
    """A wanted DPU as it is handed to its zone. `image` is the identity of the installation, empty while its image or
    flavor does not exist."""

    name: str
    zone: str
    node: str
    serial: str
    bmc_address: str
    image: str


def handover(state: ResourcesState, derivation: Derivation, key: str) -> DpuForZone | Blame | None:
    """The handover of a DPU; the blame on the object that prevents it; or None if no DPU is wanted."""
    wanted = derivation.dpus.winners.get(key)
    device = derivation.selection.hosts.devices.get(derivation.dpus.holders.get(key, ""))
    if wanted is None or device is None:
        return None
    address = bmc_address(state, device)
    serial = device.spec.serial_number
    fault = (
        check_name("name", wanted.at.name)
        or check_name("node", device.host)
        or check_text("serialNumber", serial)
        or check_bmc_address(BMC_ADDRESS, address)
    )
    of = device.key.partition("#")[0]
    if fault is None and not address:
        fault = f"it has no address of its BMC: neither annotation {BMC_ADDRESS} nor a spec.bmcIp that can be used"
    if fault is not None:
        return Blame(of, f"{short_name(of)} cannot be provisioned: {fault}")
    image = install_identity(state, wanted) or ""
    return DpuForZone(wanted.at.name, dpu_zone(state, device), device.host, serial, address, image)


def outdated(state: ResourcesState, derivation: Derivation, key: str) -> str | None:
    """DPF's reason why a DPU must be installed anew to be as wanted; None if it need not, or nothing is known of it."""
    wanted, seen = derivation.dpus.winners.get(key), state.seen.get(key)
    installed = str(seen.fields.get("installed") or "") if seen is not None else ""
    identity = install_identity(state, wanted) if wanted is not None else None
    if wanted is None or identity is None or installed in ("", identity):
        return None
    if installed.rpartition("/")[0] == identity.rpartition("/")[0]:
        return "OutdatedDPUFlavor"
    return "OutdatedBFB" if wanted.spec.get("bfb") else "OutdatedBlueFieldSoftware"


def dpu_zone(state: ResourcesState, device: HostDevice) -> str:
    """The zone of a host and its DPUs."""
    zone = device.host_labels.get(ZONE_LABEL) or _node_labels(state, device).get(ZONE_LABEL, "")
    return zone if check_zone("zone", zone) is None else FALLBACK_ZONE


def bmc_address(state: ResourcesState, device: HostDevice) -> str:
    """The address of the BMC of a device; empty if it has none that the plane can use."""
    row = state.objects.rows.get(device.key.partition("#")[0])
    if row is None:
        return ""
    name = BMC_ADDRESS if device.number < 0 else NODE_BMC_ADDRESS.format(device.number)
    if stated := row.annotations.get(name):
        return stated
    if device.number >= 0 or _REDFISH not in INTERFACES:
        return ""
    spec = msgspec.json.decode(row.spec)
    return f"{_REDFISH}://{spec['bmcIp']}:{spec.get('bmcPort', 443)}" if spec.get("bmcIp") else ""


def image_fault(state: ResourcesState, derivation: Derivation, key: str) -> str | None:
    """Why the wanted installation of a DPU cannot begin yet, in one sentence; None if it can."""
    wanted = derivation.dpus.winners.get(key)
    image = image_of(wanted) if wanted is not None else None
    if wanted is None or image is None:
        return "no image is wanted"
    if install_identity(state, wanted) is None:
        return "its image or its flavor does not exist"
    seen = state.seen.get(image.key)
    if seen is None or not seen.is_ready:
        return f"{short_name(image.key)} is not ready"
    return None


def _node_labels(state: ResourcesState, device: HostDevice) -> Labels:
    row = state.objects.rows.get(ObjectId(device.source, NODE, "", device.host).key)
    return row.labels if row is not None else {}
