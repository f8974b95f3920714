"""The DPUs on the PCI bus of a host, from sysfs, and the devices of their rshim.

A card has several functions at one slot; its first one stands for it. The serial number is in the vital product data
(VPD) of the card, and the PSID is the board id of its RDMA device. Either may be missing: without a driver a function
has no RDMA device, and a virtual machine may hide the VPD.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from projections.field_checks import is_printable
from projections.resources.host_tasks import DEVICES_MAX, FoundDevice

VENDOR = "15b3"
"""NVIDIA Networking, formerly Mellanox."""
DEVICE_IDS = ("a2d6", "a2dc")
"""BlueField-2 and BlueField-3, as DPF's rule for node feature discovery has them."""
VPD_MAX = 32_768
"""Maximum size of the vital product data: its addresses have 15 bits."""
_ADDRESS = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.0")
_RSHIM = re.compile(r"rshim\d{1,3}")
_READ_ONLY_FIELDS = 0x90
"""Tag of the resource with the read-only fields of the VPD."""
_END = 0x78


def find_devices(sysfs: Path, dev: Path, device_ids: Collection[str] = DEVICE_IDS) -> list[FoundDevice]:
    """The DPUs of a host, in the order of their PCI addresses. `sysfs` and `dev` are the roots of both file systems."""
    found = []
    for function in sorted((sysfs / "bus/pci/devices").glob("*.0")):
        device_id = _hex(function / "device")
        at = _ADDRESS.fullmatch(function.name)
        if at is None or _hex(function / "vendor") != VENDOR or device_id not in device_ids:
            continue
        fields = vpd_fields(_bytes(function / "vpd"))
        found.append(
            FoundDevice(
                pci_address=function.name,
                device_id=device_id,
                serial=fields.get("SN", ""),
                psid=_first(function.glob("infiniband/*/board_id")),
                pf0_name=next((each.name for each in sorted(function.glob("net/*"))), ""),
                pf_count=_network_functions(function, at[1]),
                rshim=rshim_of(dev, at[1]),
            )
        )
    return found[:DEVICES_MAX]


def vpd_fields(data: bytes) -> dict[str, str]:
    """The read-only fields of vital product data (PCI Local Bus Specification, appendix I), such as PN and SN.

    A damaged part ends the search: the fields before it count.
    """
    at, fields = 0, dict[str, str]()
    while at < len(data) and data[at] != _END:
        if data[at] & 0x80:
            tag, size, body = data[at], int.from_bytes(data[at + 1 : at + 3], "little"), at + 3
        else:
            tag, size, body = data[at] & 0x78, data[at] & 0x07, at + 1
        if tag == _READ_ONLY_FIELDS:
            fields |= _fields(data[body : body + size])
        at = body + size
    return fields


def rshim_of(dev: Path, slot: str) -> str:
    """The name of the rshim device of the card at this slot; empty if there is none. The rshim of a card is a function
    of its slot, which the driver names in `misc`."""
    for folder in sorted(dev.glob("rshim*")):
        if _RSHIM.fullmatch(folder.name) is None:
            continue
        for line in _text(folder / "misc").splitlines():
            name, _, value = line.partition(" ")
            if name == "DEV_NAME" and value.strip().removeprefix("pcie-").startswith(f"{slot}."):
                return folder.name
    return ""


def _network_functions(function: Path, slot: str) -> int:
    """The number of physical functions of a card that are network controllers (PCI class 02)."""
    cards = function.parent.glob(f"{slot}.*")
    count = sum(_hex(each / "class").startswith("02") and not (each / "physfn").exists() for each in cards)
    return max(1, count)


def _fields(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at + 3 <= len(data):
        size = data[at + 2]
        text = data[at + 3 : at + 3 + size].decode("ascii", errors="replace").strip("\0 \t")
        if is_printable(text):
            yield data[at : at + 2].decode("ascii", errors="replace"), text
        at += 3 + size


def _first(paths: Iterator[Path]) -> str:
    return next((text for path in sorted(paths) if (text := _text(path).strip())), "")


def _hex(path: Path) -> str:
    return _text(path).strip().removeprefix("0x").lower()


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    """The beginning of a file; empty if it cannot be read: a card may vanish while it is read."""
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read(VPD_MAX)
    except OSError:
        return b""
