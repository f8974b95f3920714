"""The network of a host for a DPU: the VFs of its first function, and the bridge that carries them.

DPF reaches a DPU of a trusted host through the first VF of the DPU's first function: it is a port of a bridge of the
host. Each part is read first and only what differs is changed, so a task can be repeated from its beginning. VFs are
made only while there are none: another number of them would first remove those that are in use.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.host_network import HostNetwork
from schemas.api import dpuplane_pb2 as pb

APPEARS_S = 60.0
"""Time for the network interface of the first VF to appear after VFs were made: its driver probes it."""
CHECK_S = 0.2


class NetworkAction:
    """Configures the network of the host. `sysfs` is the root of sysfs."""

    def __init__(self, sysfs: Path, network: HostNetwork, *, appears_s: float = APPEARS_S) -> None:
        self._sysfs = sysfs
        self._network = network
        self._appears_s = appears_s

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        function = self._sysfs / "bus/pci/devices" / task.pci_address
        await asyncio.to_thread(make_vfs, function, self._network.vfs)
        await progress(50, "waits for the interface of the first VF")
        interface = await self._interface(function)
        await asyncio.to_thread(configure_links, self._network, interface, task.mtu)

    async def _interface(self, function: Path) -> str:
        """The network interface of the first VF; empty for a card that has no VFs."""
        if not (function / "sriov_totalvfs").exists():
            return ""
        try:
            async with asyncio.timeout(self._appears_s):
                while not (found := _first_interface(function)):  # noqa: ASYNC110 - sysfs has no events
                    await asyncio.sleep(CHECK_S)
        except TimeoutError:
            raise ActionFailed(
                f"network: the first VF of {function.name} has no interface {self._appears_s:g} s after it was made; "
                "its driver is missing"
            ) from None
        return found


def make_vfs(function: Path, wanted: int) -> None:
    """Make the VFs of a function that has none, as many as are wanted and possible. Raises ActionFailed."""
    try:
        possible = int((function / "sriov_totalvfs").read_text())
        present = int((function / "sriov_numvfs").read_text())
    except FileNotFoundError:
        return  # the card, its firmware or the kernel has no SR-IOV
    except (OSError, ValueError) as error:
        raise ActionFailed(f"network: the VFs of {function.name} cannot be read: {error}") from error
    if present or not min(wanted, possible):
        return
    try:
        (function / "sriov_numvfs").write_text(f"{min(wanted, possible)}\n")
    except OSError as error:
        raise ActionFailed(f"network: no VFs could be made on {function.name}: {error.strerror}") from error


def configure_links(network: HostNetwork, interface: str, mtu: int) -> None:
    """Make the bridge with its addresses, and the interface a port of it, both with this MTU. An empty interface is
    none. Raises ActionFailed."""
    try:
        with IPRoute() as netlink:
            if _find(netlink, network.bridge) is None:
                _unless_present(lambda: netlink.link("add", ifname=network.bridge, kind="bridge"))
            bridge = _found(netlink, network.bridge)
            if interface:
                port = _found(netlink, interface)
                if port.get("master") != bridge["index"]:
                    netlink.link("set", index=port["index"], master=bridge["index"])
                _set(netlink, port, mtu)
            _set(netlink, _found(netlink, network.bridge), mtu)
            for address in network.addresses:
                _add_address(netlink, bridge["index"], address)
    except NetlinkError as error:
        raise ActionFailed(f"network: bridge {network.bridge} cannot be configured: {error}") from error


def _first_interface(function: Path) -> str:
    return next((each.name for each in sorted(function.glob("virtfn0/net/*"))), "")


def _find(netlink: Any, name: str) -> Any | None:
    indexes = netlink.link_lookup(ifname=name)
    return netlink.get_links(indexes[0])[0] if indexes else None


def _found(netlink: Any, name: str) -> Any:
    link = _find(netlink, name)
    if link is None:
        raise ActionFailed(f"network: interface {name} does not exist")
    return link


def _set(netlink: Any, link: Any, mtu: int) -> None:
    if mtu and link.get("mtu") != mtu:
        netlink.link("set", index=link["index"], mtu=mtu)
    if link["state"] != "up":
        netlink.link("set", index=link["index"], state="up")


def _add_address(netlink: Any, index: int, address: str) -> None:
    host, _, length = address.partition("/")
    _unless_present(lambda: netlink.addr("add", index=index, address=host, prefixlen=int(length)))


def _unless_present(make: Any) -> None:
    try:
        make()
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
