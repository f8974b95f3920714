"""The card with SR-IOV of a guest, and the bridge that the agent of its host makes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.support.guest.machine import Guest

ADDRESS = "0000:01:00.0"
FUNCTION = f"/sys/bus/pci/devices/{ADDRESS}"
VFS = 7
"""The number of VFs that the card can have."""
PATIENCE_S = 300
"""Time for the VF's driver, on a processor that is emulated and shared."""
BRIDGE_ADDRESSES = "198.51.100.2/24,2001:db8::2/64"


class Card:
    """The card of a guest."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def configure(
        self, *, sysfs: str = "/sys", vfs: int = 16, mtu: int = 9_000, appears_s: float = PATIENCE_S, dies: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Configure the network as the agent does for a task. With `dies`, the process is killed before that change."""
        words = (sysfs, ADDRESS, str(vfs), BRIDGE_ADDRESSES, str(mtu), str(appears_s), *([str(dies)] if dies else ()))
        return self.guest.call("tests.support.configured_host", *words, timeout_s=2 * PATIENCE_S)

    def reset(self) -> None:
        """Remove the bridge and the VFs, with the driver in place and the interface of the card up."""
        self.guest.run("ip", "link", "delete", "br-dpu")
        self.guest.write("/sys/bus/pci/drivers/igb/bind", ADDRESS)
        self.guest.write(f"{FUNCTION}/sriov_drivers_autoprobe", "1")
        assert self.guest.write(f"{FUNCTION}/sriov_numvfs", "0").returncode == 0
        self.guest.must("ip", "link", "set", self.interface, "up")

    @property
    def interface(self) -> str:
        """The name of the interface of the card itself."""
        return self.guest.must("ls", f"{FUNCTION}/net").strip()

    @property
    def vfs(self) -> int:
        return int(self.guest.read(f"{FUNCTION}/sriov_numvfs"))

    @property
    def first_vf(self) -> str:
        """The name of the interface of the first VF."""
        return self.guest.must("ls", f"{FUNCTION}/virtfn0/net").strip()

    def links(self) -> dict[str, Any]:
        """The interfaces with their addresses, by name."""
        return {each["ifname"]: each for each in json.loads(self.guest.must("ip", "-json", "address"))}

    def state(self) -> dict[str, Any]:
        """What the configuration of a host determines."""
        links = self.links()
        bridge, port = links["br-dpu"], links[self.first_vf]
        ports = sorted(name for name, link in links.items() if link.get("master") == "br-dpu")
        addresses = (each for each in bridge["addr_info"] if each["scope"] == "global")
        return {
            "vfs": self.vfs,
            "ports": ports,
            "mtu": (bridge["mtu"], port["mtu"]),
            "up": ("UP" in bridge["flags"], "UP" in port["flags"]),
            "addresses": sorted(f"{each['local']}/{each['prefixlen']}" for each in addresses),
        }

    def configured(self, *, vfs: int = VFS, mtu: int = 9_000) -> dict[str, Any]:
        """The state that a configuration has to reach."""
        return {
            "vfs": vfs,
            "ports": [self.first_vf],
            "mtu": (mtu, mtu),
            "up": (True, True),
            "addresses": sorted(BRIDGE_ADDRESSES.split(",")),
        }
