"""The agent of a host makes VFs of a card with SR-IOV, in a guest with a kernel of its own: what the kernel does and
refuses, and what an agent leaves that is killed meanwhile."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.support.guest.card import ADDRESS, FUNCTION, VFS, Card
from tests.support.guest.machine import guest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
TRIES = 20
"""The kernel itself reports changes for some seconds: of links, and of IPv6 addresses that no other host has."""
UP = "grep -q up /sys/class/net/$1/operstate && grep -q up /sys/class/net/$2/operstate"
MARK = "until grep -q $1 /run/changes; do ip link add $1 type bridge; ip link delete $1; sleep 0.2; done"
"""Makes an interface come and go until the monitor has reported it, so that it has reported all before."""


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with guest(tmp_path_factory.mktemp("guest")) as found:
        yield Card(found)


@pytest.fixture
def card(booted: Card) -> Card:
    booted.reset()
    return booted


def changed_by_a_task(card: Card) -> set[str]:
    """The interfaces that have changed during a task, by the kernel's own reports."""
    card.guest.must(
        "sh", "-c", "rm -f /run/changes; ip monitor link address > /run/changes 2>&1 & echo $! > /run/monitor"
    )
    card.guest.must("sh", "-c", MARK, "sh", "before")
    assert card.configure().stderr == ""
    card.guest.must("sh", "-c", MARK, "sh", "after")
    card.guest.must("sh", "-c", "kill $(cat /run/monitor)")
    return {line.split()[1] for line in card.guest.read("/run/changes").splitlines() if line[:1].isdigit()}


def test_the_vfs_are_made_once_and_the_first_one_is_a_port_of_the_bridge(card: Card) -> None:
    """More VFs are wanted than the card can have. A second task finds everything done: the kernel reports no change."""
    assert card.configure().stderr == ""
    assert card.state() == card.configured()
    made = card.links()
    names = card.guest.must("sh", "-c", f"ls -d {FUNCTION}/virtfn*/net/*").split()
    interfaces = {path.rpartition("/")[2] for path in names}
    assert len({made[name]["address"] for name in interfaces}) == VFS
    card.guest.must("sh", "-c", f"until {UP}; do sleep 0.2; done", "sh", "br-dpu", card.first_vf)
    assert {"before:", "after:"} in (changed_by_a_task(card) for _ in range(TRIES))
    assert {name: link["ifindex"] for name, link in card.links().items()} == {
        name: link["ifindex"] for name, link in made.items()
    }
    assert card.configure(mtu=1_500).stderr == ""
    assert card.state() == card.configured(mtu=1_500)


def test_vfs_that_a_card_has_stay_until_somebody_removes_them(card: Card) -> None:
    """The kernel refuses to change one number of VFs into another: those in use would have to go first."""
    assert card.configure(vfs=3).stderr == ""
    first = card.links()[card.first_vf]["address"]
    refused = card.guest.write(f"{FUNCTION}/sriov_numvfs", "5")
    assert refused.returncode != 0, "the kernel changes the number of VFs in use"
    assert card.configure(vfs=5).stderr == ""
    assert card.state() == card.configured(vfs=3)
    assert card.links()[card.first_vf]["address"] == first
    assert card.guest.write(f"{FUNCTION}/sriov_numvfs", "0").returncode == 0
    assert card.configure(vfs=5).stderr == ""
    assert card.state() == card.configured(vfs=5)


@pytest.mark.parametrize("dies", [1, 2, 4, 6])
def test_an_agent_that_is_killed_between_two_changes_completes_them(card: Card, dies: int) -> None:
    ran = card.configure(dies=dies)
    assert ran.returncode == -9, ran.stderr
    assert card.vfs == VFS
    assert card.configure().stderr == ""
    assert card.state() == card.configured()


def test_more_vfs_than_the_kernel_allows_are_refused_and_named(card: Card) -> None:
    """A card says that it can have 64 VFs, and the kernel knows better."""
    tree = f"/run/sys/bus/pci/devices/{ADDRESS}"
    script = f"mkdir -p {tree} && echo 64 > {tree}/sriov_totalvfs && ln -sf {FUNCTION}/sriov_numvfs {tree}/sriov_numvfs"
    card.guest.must("sh", "-c", script)
    refused = f"failed: network: no VFs could be made on {ADDRESS}: Numerical result out of range\n"
    assert card.configure(sysfs="/run/sys").stderr == refused
    assert card.vfs == 0


def test_a_card_without_its_driver_fails_the_task_until_it_has_one(card: Card) -> None:
    card.guest.must("sh", "-c", f"echo {shlex.quote(ADDRESS)} > /sys/bus/pci/drivers/igb/unbind")
    refused = f"failed: network: no VFs could be made on {ADDRESS}: No such file or directory\n"
    assert card.configure().stderr == refused
    card.reset()
    assert card.configure().stderr == ""
    assert card.state() == card.configured()


def test_a_vf_that_its_driver_refuses_as_a_port_fails_the_task_until_the_card_is_up(card: Card) -> None:
    """The VFs of this card need the card's own interface, which is the host's. Their driver notices by itself."""
    card.guest.must("ip", "link", "set", card.interface, "down")
    ran = card.configure(appears_s=3)
    assert ran.stderr.startswith("failed: network: interface eth"), ran
    assert ran.stderr.endswith(" cannot be made a port of bridge br-dpu: Invalid argument\n")
    card.guest.must("ip", "link", "set", card.interface, "up")
    assert card.configure().stderr == ""
    assert card.state() == card.configured()


def test_a_vf_without_an_interface_fails_the_task_until_its_driver_has_it(card: Card) -> None:
    card.guest.must("sh", "-c", f"echo 0 > {FUNCTION}/sriov_drivers_autoprobe")
    failed = f"failed: network: the first VF of {ADDRESS} has no interface 5 s after it was made; its driver is missing"
    assert card.configure(appears_s=5).stderr == f"{failed}\n"
    assert card.vfs == VFS
    first = card.guest.must("readlink", f"{FUNCTION}/virtfn0").strip().rpartition("/")[2]
    card.guest.must("sh", "-c", f"echo 1 > {FUNCTION}/sriov_drivers_autoprobe")
    card.guest.must("sh", "-c", f"echo {first} > /sys/bus/pci/drivers/igbvf/bind")
    assert card.configure().stderr == ""
    assert card.state() == card.configured()
