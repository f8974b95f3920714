"""The device demo in a script: DPUs are installed over Redfish, and a real Open vSwitch holds what the log says."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from pathlib import Path

import pytest

from deploy.demo.devices.manifests import FIREWALL, ROUTER, DemoDpu, devices, hosts
from deploy.demo.devices.summary import DeviceSummary
from deploy.demo.devices.switches import PACKETS, DpuSwitches, dpu_switches
from deploy.host.openvswitch import SwitchFailed, missing_program, switch_folder
from tests.support.openvswitch import packets_turn
from tests.support.planes import run
from tests.support.requirements import missing_requirement

DPUS = 4
DEMO_S = 280.0
NODE, STRANGER = "10.1.0.2", "10.200.0.1"


@pytest.fixture(autouse=True)
def _has_open_vswitch() -> None:
    if missing := missing_program():
        missing_requirement(missing)


async def test_a_small_fleet_is_installed_and_its_switches_hold_what_the_log_says(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    with packets_turn():
        ran = await run("demo", "--devices", str(DPUS), "--json", "--data", str(data), timeout_s=DEMO_S)
    assert ran.status == 0, (ran.stderr, ran.stdout)
    found = ran.json()
    assert [found[name] for name in ("nodes", "zones", "dpus")] == [19, 1, DPUS], "one of 20 nodes has left"
    assert [found[name] for name in ("installs", "updates")] == [DPUS + 1, DPUS + 1], "one DPU is installed twice"
    assert found["os_versions"] == {"DOCA_3.0.0_BSP_4.11.0": DPUS - 1, "DOCA_3.1.0_BSP_4.11.0": 1}
    assert found["image_bytes"] > (DPUS + 1) * 200_000
    assert [found[name] for name in ("certified", "chained", "equal")] == [DPUS] * 3
    assert [found[name] for name in ("passed_node", "passed_gone", "passed_stranger")] == [DPUS, 0, 0]
    assert [*found["arrived"].values()] == ([PACKETS, 0, 0] if os.geteuid() == 0 else [])
    assert (found["differences"], found["digests_match"]) == ([], True)
    shown = await run("events", "export", "--data", str(data / "log"), "--type", "StepSucceeded")
    steps = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sum("OS Installing" in json.dumps(each) for each in steps) == DPUS + 1


def pass_from(switches: DpuSwitches, dpu: DemoDpu, source: str) -> None:
    """Let a bridge pass the packets of a source, and ARP."""
    bridge, ports = switches.bridge(dpu), "in_port=1,actions=output:2"
    for flow in (f"priority=2,ip,nw_src={source},{ports}", f"priority=2,arp,{ports}", "arp,in_port=2,actions=output:1"):
        switches.switch.ofctl("add-flow", bridge, flow)


def test_what_a_bridge_passes_is_seen_for_each_bridge() -> None:
    first, second = DemoDpu(1), DemoDpu(2)
    with dpu_switches([first, second], secrets.token_hex(2), has_packets=False) as switches:
        assert not switches.lets_pass(first, NODE), "a new bridge drops all packets"
        pass_from(switches, first, NODE)
        asked = [(dpu, source) for dpu in (first, second) for source in (NODE, STRANGER)]
        assert [each for each in asked if switches.lets_pass(*each)] == [(first, NODE)]
        switches.lose_flows(first)
        assert not switches.lets_pass(first, NODE)
        ids = switches.switch.vsctl("get", "interface", switches.port(second, FIREWALL), "external_ids:dpf-id")
        assert ids.strip().strip('"') == "dpf/firewall-02/firewall"


def test_packets_go_through_the_bridge_with_the_wire() -> None:
    if os.geteuid() != 0:
        missing_requirement("network namespaces need root")
    dpu = DemoDpu(1)
    with packets_turn(), dpu_switches([dpu, DemoDpu(2)], secrets.token_hex(2)) as switches:
        pass_from(switches, dpu, NODE)
        assert switches.send([NODE, STRANGER]) == {NODE: PACKETS, STRANGER: 0}
        assert switches.port(dpu, ROUTER) != switches.port(dpu, FIREWALL)


def test_a_second_switch_that_forwards_packets_is_refused_with_the_reason() -> None:
    if os.geteuid() != 0:
        missing_requirement("network namespaces need root")
    names = [f"b{secrets.token_hex(3)}" for _ in range(2)]
    with packets_turn(), switch_folder(has_packets=True) as first, switch_folder(has_packets=True) as second:
        assert first.add_bridge(names[0], ports=0).exists()
        with pytest.raises(
            SwitchFailed, match=rf"^Open vSwitch could not make the bridge {names[1]}: another Open vSwi"
        ):
            second.add_bridge(names[1], ports=0)


def test_every_deviation_is_a_failure() -> None:
    good = DeviceSummary(
        nodes=19,
        zones=1,
        dpus=4,
        rules=5,
        installs=5,
        updates=5,
        image_bytes=1,
        install_seconds=1.0,
        os_versions={"a": 4},
        certified=4,
        chained=4,
        reflashed="d",
        equal=4,
        differences=(),
        passed_node=4,
        passed_gone=0,
        passed_stranger=0,
        arrived={"n": PACKETS, "g": 0, "s": 0},
        log_records=1,
        log_bytes=1,
        digests_match=True,
    )
    assert good.is_good
    assert dataclasses.replace(good, arrived={}).is_good, "without root no packet is sent"
    changes: list[dict[str, object]] = [
        {"installs": 4},
        {"updates": 6},
        {"certified": 3},
        {"chained": 3},
        {"equal": 3},
        {"differences": ("d",)},
        {"passed_node": 3},
        {"passed_gone": 1},
        {"passed_stranger": 1},
        {"arrived": {"n": PACKETS - 1, "g": 0, "s": 0}},
        {"arrived": {"n": PACKETS, "g": 1, "s": 0}},
        {"digests_match": False},
    ]
    for change in changes:
        assert not dataclasses.replace(good, **change).is_good, change  # type: ignore[arg-type]


def test_racks_have_ten_dpus_and_hosts_one() -> None:
    dpus = [DemoDpu(number) for number in range(1, 13)]
    assert [dpu.rack for dpu in dpus].count("rack-1") == 10
    assert len({dpu.name for dpu in dpus}) == 12
    specs = [each.spec for each in devices({dpus[0]: ("127.0.0.1", 1)})]
    assert specs == [{"serialNumber": "MT2600DM0001", "bmcIp": "127.0.0.1", "bmcPort": 1}]
    labels = [each.labels for each in hosts(dpus, reflashed=dpus[-1])]
    assert [[*each.values()][1] for each in labels] == ["no"] * 11 + ["yes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--devices", "1"), "2<=x<=100"),
        (("--devices", "3", "--platform"), "give --platform or --devices, not both"),
        (("--devices", "3", "--nodes", "7"), "--nodes must not be given with --devices"),
    ],
)
async def test_invalid_arguments_are_refused(arguments: tuple[str, ...], says: str) -> None:
    ran = await run("demo", *arguments)
    assert ran.status == 2
    assert says in ran.stderr


async def test_without_open_vswitch_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = await run("demo", "--devices", "3")
    assert ran.status == 3
    assert "needs Open vSwitch: ovsdb-server not found: apt-get install openvswitch-switch" in ran.stderr
