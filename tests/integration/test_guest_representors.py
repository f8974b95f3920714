"""An e-switch in switchdev mode gives the VFs of a DPU's host their representors, and the network document of the plane
names them: netdevsim and the datapath of Open vSwitch in the kernel of a guest."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.host.openvswitch import SCHEMA, missing_program
from tests.support.guest.machine import Guest, guest
from tests.support.requirements import missing_requirement
from tests.unit.test_network_documents import CLUSTER, chain, chains, derived, interface, interfaces, physical, switch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

DEVICE, VFS = "netdevsim/netdevsim1", 4
NUMBER = "/sys/bus/netdevsim/devices/netdevsim1/sriov_numvfs"
RUN = "/run/ovs"
ENVIRONMENT = (f"OVS_RUNDIR={RUN}", f"OVS_LOGDIR={RUN}")
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    if missing := missing_program():
        missing_requirement(missing)
    if shutil.which("devlink") is None:
        missing_requirement("devlink not found: apt-get install iproute2")
    with guest(tmp_path_factory.mktemp("guest")) as found:
        yield found


@pytest.fixture
def booted(running: Guest) -> Iterator[Guest]:
    """The guest with an e-switch in legacy mode."""
    running.must("sh", "-c", "echo '1 1' > /sys/bus/netdevsim/new_device")
    yield running
    running.must("sh", "-c", "echo 1 > /sys/bus/netdevsim/del_device")


def names(found: Guest) -> dict[str, str]:
    """The interface of each port of the e-switch, by the name that the kernel gives the port."""
    ports = json.loads(found.must("devlink", "-j", "port", "show"))["port"].values()
    interfaces = [each["netdev"] for each in ports]
    return {found.read(f"/sys/class/net/{name}/phys_port_name"): name for name in interfaces}


def rename(found: Guest) -> None:
    """Name the interfaces after their ports, as the udev rule of a DPU does."""
    for port, name in names(found).items():
        found.must("ip", "link", "set", name, "name", port)


def start_open_vswitch(found: Guest) -> None:
    """Open vSwitch with the datapath of the kernel, and a bridge without ports."""
    database, socket = f"{RUN}/conf.db", f"unix:{RUN}/db.sock"
    daemon = ("--detach", "--no-chdir", f"--log-file={RUN}/log", "--pidfile")
    found.must("mkdir", RUN)
    found.must("ovsdb-tool", "create", database, str(SCHEMA))
    own_tmp = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmp /tmp && exec "$@"', "sh")
    found.must(*own_tmp, "env", *ENVIRONMENT, "ovsdb-server", database, f"--remote=p{socket}", *daemon)
    found.must("ovs-vsctl", f"--db={socket}", "--no-wait", "init")
    found.must("env", *ENVIRONMENT, "ovs-vswitchd", socket, *daemon)
    bridge = ("--", "set", "bridge", "br-sfc", "fail-mode=secure", "protocols=OpenFlow10,OpenFlow14")
    found.must("ovs-vsctl", f"--db={socket}", "--timeout=60", "add-br", "br-sfc", *bridge)


def ports_of_kernel(found: Guest) -> set[str]:
    """The interfaces that the datapath of the kernel has."""
    links: list[dict[str, Any]] = json.loads(found.must("ip", "-json", "link"))
    return {each["ifname"] for each in links if each.get("master") == "ovs-system"}


def until_waiting(found: Guest, *expected: str) -> None:
    """Wait until the bridge has everything of its document but these interfaces."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        said = found.run("tail", "-n1", "/run/said").stdout.strip()
        if said and sorted(json.loads(said)) == sorted(expected):
            return
        assert time.monotonic() < deadline, f"{said}: {found.read('/run/errors')}"
        time.sleep(0.5)


def test_the_kernel_makes_no_representors_of_vfs_that_are_not_there_and_keeps_their_number(booted: Guest) -> None:
    assert booted.write(NUMBER, "2").returncode == 0
    assert booted.write(NUMBER, "3").returncode != 0
    booted.must("devlink", "dev", "eswitch", "set", DEVICE, "mode", "switchdev")
    assert {*names(booted)} == {"p1", "pf0vf0", "pf0vf1"}
    booted.must("devlink", "dev", "eswitch", "set", DEVICE, "mode", "legacy")
    assert {*names(booted)} == {"p1"}


def test_interfaces_of_vfs_are_the_representors_and_wait_until_the_eswitch_has_them(booted: Guest) -> None:
    assert booted.write(NUMBER, str(VFS)).returncode == 0
    rename(booted)
    start_open_vswitch(booted)
    functions = {
        f"vf{vf}": interface({"interfaceType": "vf", "vf": {"pfID": 0, "vfID": vf}}, vf=str(vf)) for vf in (0, 3)
    }
    rows = interfaces(p1=physical("p1"), **functions) | chains(
        web=chain(switch({"uplink": "p1"}, {"vf": "0"}, {"vf": "3"}))
    )
    document = derived(rows).of_node(CLUSTER, {})
    assert not document.faults
    program = (sys.executable, "-m", "tests.support.guest.networked_bridge", RUN, "br-sfc", document.text)
    booted.must("sh", "-c", '"$@" > /run/said 2> /run/errors & echo $! > /run/pid', "sh", *program)
    until_waiting(booted, "dpf/vf0", "dpf/vf3")
    assert ports_of_kernel(booted) == {"p1"}
    booted.must("devlink", "dev", "eswitch", "set", DEVICE, "mode", "switchdev")
    assert {*names(booted)} == {"p1", *(f"pf0vf{number}" for number in range(VFS))}
    rename(booted)
    until_waiting(booted)
    assert ports_of_kernel(booted) == {"p1", "pf0vf0", "pf0vf3"}
    packet = "in_port=pf0vf3,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff"
    traced = booted.must("env", *ENVIRONMENT, "ovs-appctl", "ofproto/trace", "--names", "br-sfc", packet)
    (actions,) = (line for line in traced.splitlines() if line.startswith("Datapath actions: "))
    assert {*actions.removeprefix("Datapath actions: ").split(",")} == {"p1", "pf0vf0"}
