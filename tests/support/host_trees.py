"""Hosts as trees of files: the parts of sysfs, procfs and /dev that the agent of a host reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

VENDOR = "0x15b3"


class HostTree(NamedTuple):
    """The roots of the file systems of a host."""

    sys: Path
    proc: Path
    dev: Path

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `dpuplane host-agent` for this tree."""
        return tuple(text for name, root in self._asdict().items() for text in (f"--{name}-root", str(root)))

    @property
    def boot_id(self) -> str:
        """The boot that the host is in."""
        return (self.proc / "sys/kernel/random/boot_id").read_text().strip()

    def boot(self, boot_id: str, uptime_s: float = 12.5) -> None:
        """Put the host into another boot."""
        folder = self.proc / "sys/kernel/random"
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((folder / "boot_id", boot_id), (self.proc / "uptime", f"{uptime_s} 20.00")):
            partial = path.with_name(f".{path.name}")
            partial.write_text(f"{text}\n")
            partial.replace(path)

    def card(
        self, slot: str, serial: str, *, psid: str = "MT_0000000884", device: str = "0xa2dc", functions: int = 2
    ) -> None:
        """Add a card with network functions, and a management function behind them, as a BlueField-3 has."""
        for number in range(functions):
            folder = self._function(f"{slot}.{number}", device, "0x020000")
            (folder / "vpd").write_bytes(vpd(SN=serial, PN="900-9D3B6-00CV-A") if serial else b"")
            (folder / "net" / f"p{number}_{slot[5:7]}").mkdir(parents=True)
            if psid:
                (folder / "infiniband" / f"mlx5_{number}").mkdir(parents=True)
                (folder / "infiniband" / f"mlx5_{number}" / "board_id").write_text(f"{psid}\n")
        self._function(f"{slot}.{functions}", "0xc2d5", "0x088000")

    def other(self, address: str, vendor: str = "0x8086", device: str = "0x1572") -> None:
        """Add a card that is no DPU."""
        (self._function(address, device, "0x020000") / "vendor").write_text(f"{vendor}\n")

    def rshim(self, name: str, slot: str) -> Path:
        """Add the rshim of a card: its folder. `boot` is a plain file that keeps what is written to it."""
        folder = self.dev / name
        folder.mkdir(parents=True)
        (folder / "misc").write_text(
            f"DISPLAY_LEVEL   0 (0:basic, 1:advanced, 2:log)\nBOOT_MODE       1\nDEV_NAME        pcie-{slot}.2\n"
        )
        (folder / "boot").touch()
        return folder

    def _function(self, address: str, device: str, kind: str) -> Path:
        real = self.sys / "devices/pci" / address
        real.mkdir(parents=True)
        for name, text in (("vendor", VENDOR), ("device", device), ("class", kind)):
            (real / name).write_text(f"{text}\n")
        link = self.sys / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(real, link.parent))
        return real


def host_tree(folder: Path, boot_id: str = "boot-1") -> HostTree:
    """The tree of a host without cards."""
    made = HostTree(folder / "sys", folder / "proc", folder / "dev")
    for root in made:
        root.mkdir(parents=True)
    made.boot(boot_id)
    return made


def vpd(**fields: str) -> bytes:
    """Vital product data with read-only fields, in the form of PCI cards."""
    name = b"NVIDIA BlueField-3"
    body = b"".join(
        key.encode() + bytes([len(text)]) + text.encode() for key, text in (*fields.items(), ("RV", "\0\0\0"))
    )
    identifier = b"\x82" + len(name).to_bytes(2, "little") + name
    return identifier + b"\x90" + len(body).to_bytes(2, "little") + body + b"\x78"
