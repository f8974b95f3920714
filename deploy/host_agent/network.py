"""The network of a host for a DPU: the VFs of its first function, and the bridge that carries them.

DPF reaches a DPU of a trusted host through the first VF of the DPU's first function: it is a port of a bridge of the
host. Each part is read first and only what differs is changed, so a task can be repeated from its beginning. VFs are
made only while there are none: another number of them would first remove those that are in use.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.host_network import HostNetwork
from schemas.api import dpuplane_pb2 as pb

APPEARS_S = 60.0
"""Time for the interface of the first VF to appear after VFs were made, as its driver probes it, and again for that
driver to accept a bridge. That of Intel's 82576 does so about 20 s later, once the card's own driver has answered."""
CHECK_S = 0.2
RETRY_S = 1.0
_FINAL = (errno.EPERM, errno.EACCES)
"""Errors that no wait mends."""


class PortRefused(ActionFailed):
    """The driver of an interface does not let it be a port of a bridge, perhaps not yet."""


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
        await self._configure(function, task.mtu, progress)

    async def _configure(self, function: Path, mtu: int, progress: Progress) -> None:
        loop = asyncio.get_running_loop()
        began, is_told = loop.time(), False
        while True:
            interface = await self._interface(function)  # a VF that is probed anew has another one
            try:
                return await asyncio.to_thread(configure_links, self._network, interface, mtu)
            except PortRefused as error:
                if loop.time() - began > self._appears_s:
                    raise
                if not is_told:
                    await progress(60, f"waits for the driver of the first VF: {error}")
                    is_told = True
            await asyncio.sleep(RETRY_S)

    async def _interface(self, function: Path) -> int:
        """The index of the interface of the first VF; 0 for a card that has no VFs."""
        if not (function / "sriov_totalvfs").exists():
            return 0
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


def configure_links(network: HostNetwork, interface: int, mtu: int) -> None:
    """Make the bridge with its addresses, and the interface with this index a port of it, both with this MTU. Index 0
    is no interface. Raises ActionFailed."""
    name = network.bridge
    with IPRoute() as netlink:
        with _naming(f"bridge {name} cannot be made"):
            if not netlink.link_lookup(ifname=name):
                _unless_present(lambda: netlink.link("add", ifname=name, kind="bridge"))
            bridge = _index(netlink, name)
        if interface:
            port = _link(netlink, interface)
            with _naming(f"interface {port.get('ifname')} cannot be configured"):
                # before it is a port: the driver of a VF may ask the driver of its card only once the VF is up
                _set(netlink, port, mtu)
            with _naming(f"interface {port.get('ifname')} cannot be made a port of bridge {name}", PortRefused):
                if port.get("master") != bridge:
                    netlink.link("set", index=interface, master=bridge)
        with _naming(f"bridge {name} cannot be configured"):
            _set(netlink, _link(netlink, bridge), mtu)
            for address in network.addresses:
                _add_address(netlink, bridge, address)


@contextmanager
def _naming(what: str, kind: type[ActionFailed] = ActionFailed) -> Iterator[None]:
    """Name the operation that failed, if the kernel refuses a change."""
    try:
        yield
    except NetlinkError as error:
        message = f"network: {what}: {os.strerror(error.code)}"
        raise (ActionFailed if error.code in _FINAL else kind)(message) from error


def _first_interface(function: Path) -> int:
    """The index of the interface of the first VF; 0 if it has none yet.

    The index is read, not the name: udev renames an interface just after its driver has made it.
    """
    for path in function.glob("virtfn0/net/*/ifindex"):
        with suppress(OSError, ValueError):
            return int(path.read_text())
    return 0


def _index(netlink: Any, name: str) -> int:
    for index in netlink.link_lookup(ifname=name):
        return int(index)
    raise ActionFailed(f"network: the interface {name} does not exist")


def _link(netlink: Any, index: int) -> Any:
    with _naming(f"the interface with index {index} cannot be read"):
        return netlink.get_links(index)[0]


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
