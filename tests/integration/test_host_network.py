"""The agent of a host configures its network with the kernel's own bridges and interfaces, in a network namespace."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.host_network import HostNetwork
from deploy.host_agent.network import NetworkAction, make_vfs
from schemas.api import dpuplane_pb2 as pb
from tests.support.host_trees import HostTree, host_tree
from tests.support.requirements import missing_requirement

CARD = "0000:03:00.0"
CONFIGURE = """
import socket, sys
from deploy.host_agent.host_network import HostNetwork
from deploy.host_agent.network import configure_links
from deploy.host_agent.actions import ActionFailed
bridge, addresses, interface, mtu = sys.argv[1:]
index = int(interface) if interface.isdecimal() else socket.if_nametoindex(interface)
try:
    configure_links(HostNetwork(bridge, addresses.split(",") if addresses else ()), index, int(mtu))
except ActionFailed as error:
    sys.exit(f"failed: {error}")
"""


class Namespace:
    """A network namespace of its own, with two ends of a cable: `vf0` and `peer`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        inside = ("ip", "netns", "exec", self.name, *command)
        return subprocess.run(inside, check=False, capture_output=True, text=True, timeout=120)

    def configure(
        self, addresses: str = "", *, bridge: str = "br-dpu", interface: str = "vf0", mtu: int = 9_000
    ) -> str:
        """Configure the network; returns the error."""
        ran = self.run(sys.executable, "-c", CONFIGURE, "br-dpu", addresses, interface, str(mtu))
        return ran.stderr

    def do_task(self, tree: HostTree, function: Path, interface: str, *dies: str) -> subprocess.CompletedProcess[str]:
        """Do the task of an agent, with this interface as that of the first VF. With `dies`, the process is killed
        before that change."""
        (function / "virtfn0/net/any").mkdir(parents=True)
        (function / "virtfn0/net/any/ifindex").write_text(f"{self.links()[interface]['ifindex']}\n")
        words = (str(tree.sys), CARD, "8", ADDRESSES, "9000", "1.5", *dies)
        return self.run(sys.executable, "-m", "tests.support.configured_host", *words)

    def links(self) -> dict[str, Any]:
        """The interfaces with their addresses, by name."""
        return {each["ifname"]: each for each in json.loads(self.run("ip", "-json", "address").stdout)}


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        missing_requirement("network namespaces need root and iproute2")
    found = Namespace(f"dpuplane-{os.getpid()}")
    added = subprocess.run(("ip", "netns", "add", found.name), check=False, capture_output=True, text=True, timeout=60)
    if added.returncode != 0:
        missing_requirement(f"network namespaces cannot be made here: {added.stderr}")
    try:
        assert found.run("ip", "link", "add", "vf0", "type", "veth", "peer", "name", "peer").returncode == 0
        yield found
    finally:
        subprocess.run(("ip", "netns", "delete", found.name), check=True, timeout=60)


def state_of(links: dict[str, Any]) -> dict[str, Any]:
    """What a configuration determines of the bridge and its port."""
    bridge, port = links["br-dpu"], links["vf0"]
    addresses = sorted(
        f"{each['local']}/{each['prefixlen']}" for each in bridge["addr_info"] if each["scope"] == "global"
    )
    return {
        "master": port.get("master"),
        "mtu": (bridge["mtu"], port["mtu"]),
        "up": ("UP" in bridge["flags"], "UP" in port["flags"]),
        "addresses": addresses,
    }


WANTED = {
    "master": "br-dpu",
    "mtu": (9_000, 9_000),
    "up": (True, True),
    "addresses": ["198.51.100.2/24", "2001:db8::2/64"],
}
ADDRESSES = "198.51.100.2/24,2001:db8::2/64"


def test_the_bridge_its_addresses_its_port_and_the_mtu_are_made_once(namespace: Namespace) -> None:
    assert namespace.configure(ADDRESSES) == ""
    links = namespace.links()
    assert state_of(links) == WANTED
    assert namespace.configure(ADDRESSES) == ""
    again = namespace.links()
    assert state_of(again) == WANTED
    assert again["br-dpu"]["ifindex"] == links["br-dpu"]["ifindex"]
    assert namespace.configure(ADDRESSES, mtu=1_500) == ""
    assert state_of(namespace.links()) == WANTED | {"mtu": (1_500, 1_500)}


def test_what_others_have_configured_stays(namespace: Namespace) -> None:
    for command in (
        "ip link add br-dpu type bridge",
        "ip address add 203.0.113.7/24 dev br-dpu",
        "ip link set peer master br-dpu",
        "ip link set vf0 up",
    ):
        assert namespace.run(*command.split()).returncode == 0
    assert namespace.configure("198.51.100.2/24") == ""
    links = namespace.links()
    assert state_of(links)["addresses"] == ["198.51.100.2/24", "203.0.113.7/24"]
    assert links["peer"]["master"] == "br-dpu"


def test_a_missing_interface_and_a_change_that_the_kernel_refuses_are_named(namespace: Namespace) -> None:
    missing = "failed: network: the interface with index 99 cannot be read: No such device\n"
    assert namespace.configure(interface="99") == missing
    refused = "failed: network: interface vf0 cannot be configured: Invalid argument\n"
    assert namespace.configure(mtu=70_000) == refused


@pytest.mark.parametrize("calls", range(1, 8))
def test_an_agent_that_is_killed_between_two_changes_completes_them(
    tmp_path: Path, namespace: Namespace, calls: int
) -> None:
    """The process ends before its nth request to the kernel, as by SIGKILL; the next one has the same result."""
    ran = namespace.do_task(*card(tmp_path, "8", "8"), "vf0", str(calls))
    assert ran.returncode in (-9, 137), ran.stderr
    assert namespace.configure(ADDRESSES) == ""
    assert state_of(namespace.links()) == WANTED


@pytest.mark.parametrize("names", ["renamed", "vf0"])
def test_an_interface_that_udev_renames_meanwhile_is_the_same_interface(namespace: Namespace, names: str) -> None:
    """The index that the agent has read stays, also while another interface gets the name that it had."""
    index = str(namespace.links()["vf0"]["ifindex"])
    assert namespace.run("ip", "link", "set", "vf0", "name", "vf0-renamed").returncode == 0
    if names == "vf0":
        assert namespace.run("ip", "link", "set", "peer", "name", "vf0").returncode == 0
    assert namespace.configure(ADDRESSES, interface=index) == ""
    links = namespace.links()
    assert [name for name, link in links.items() if link.get("master") == "br-dpu"] == ["vf0-renamed"]


@pytest.mark.parametrize(
    ("interface", "failure"),
    [("vf0", ""), ("lo", "failed: network: interface lo cannot be made a port of bridge br-dpu: Invalid argument\n")],
)
def test_the_first_vf_is_the_port_or_is_asked_again_until_its_time_is_over(
    tmp_path: Path, namespace: Namespace, interface: str, failure: str
) -> None:
    """The kernel lets no loopback interface into a bridge."""
    assert namespace.do_task(*card(tmp_path, "8", "8"), interface).stderr == failure
    assert (namespace.links()[interface].get("master") == "br-dpu") == (not failure)


def card(tmp_path: Path, total: str, present: str = "0") -> tuple[HostTree, Path]:
    tree = host_tree(tmp_path)
    tree.card("0000:03:00", "MT1")
    function = tree.sys / "bus/pci/devices" / CARD
    (function / "sriov_totalvfs").write_text(total)
    (function / "sriov_numvfs").write_text(present)
    return tree, function


@pytest.mark.parametrize(
    ("total", "present", "after"),
    [("8\n", "0\n", "8\n"), ("127\n", "0\n", "16\n"), ("8\n", "4\n", "4\n"), ("0", "0", "0")],
)
def test_vfs_are_made_only_where_there_are_none(tmp_path: Path, total: str, present: str, after: str) -> None:
    _, function = card(tmp_path, total, present)
    make_vfs(function, 16)
    assert (function / "sriov_numvfs").read_text() == after


async def test_a_vf_without_a_driver_fails_the_task(tmp_path: Path) -> None:
    tree, _ = card(tmp_path, "8")
    action = NetworkAction(tree.sys, HostNetwork(), appears_s=0.5)

    async def progress(percent: int, message: str, *, is_required: bool = False) -> bool:
        await asyncio.sleep(0)
        return True

    with pytest.raises(ActionFailed, match=r"^network: the first VF of 0000:03:00.0 has no interface 0.5 s after"):
        await action.run(pb.HostTask(id="t", pci_address=CARD, mtu=1_500), progress)


def test_broken_counts_of_vfs_are_named(tmp_path: Path) -> None:
    _, function = card(tmp_path, "many")
    with pytest.raises(ActionFailed, match=r"^network: the VFs of 0000:03:00.0 cannot be read: "):
        make_vfs(function, 16)
