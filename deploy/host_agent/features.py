"""The feature file of node feature discovery (NFD): labels of the host's Node about its DPUs, named as by DPF."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deploy.atomic_files import atomic_write
from projections.resources.host_tasks import FoundDevice


def features_text(devices: Iterable[FoundDevice], *, has_bridge: bool) -> str:
    """The lines of the file. NFD prefixes each name with `feature.node.kubernetes.io/`."""
    lines = []
    for number, device in enumerate(devices):
        lines.append(f"dpu-{number}-pci-address={device.pci_address.rpartition('.')[0].replace(':', '-')}")
        if device.psid:
            lines.append(f"dpu-{number}-ps-id={device.psid}")
        if device.pf0_name:
            lines.append(f"dpu-{number}-pf0-name={device.pf0_name}")
    if lines:
        lines.append("dpu-enabled=true")
    if has_bridge:
        lines.append("dpu-oob-bridge-configured=")
    return "".join(f"{line}\n" for line in lines)


def write_features(path: Path, text: str) -> None:
    """Write the file, unless it has this text. Raises PermanentError."""
    try:
        if path.read_text() == text:
            return
    except OSError:
        pass
    with atomic_write(path) as partial:
        partial.write_text(text)
