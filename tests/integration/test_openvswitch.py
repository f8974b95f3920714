"""Rules in a real Open vSwitch: its verdicts, restarts, drift, and the flows of other programs."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.host.openvswitch import Switch
from drivers.backends import openvswitch, repairs
from drivers.backends.device import DeviceFailed
from drivers.backends.openvswitch import OpenVSwitch
from drivers.openflow import rule_flows, session
from drivers.openflow.rule_flows import rule_cookie
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import Rule, precedence
from tests.bench.memory import cpu_seconds
from tests.contract.device import changed, restored, some_rules, table
from tests.support.openvswitch import LAYOUT, bridge_device
from tests.support.planes import run, serving, started

PACKETS = 12


def prefix(text: str) -> bytes:
    network = ipaddress.ip_network(text)
    return network.network_address.packed + bytes((network.prefixlen,))


def is_allowed(rules: DeviceTable, source: str, protocol: str, port: int) -> bool:
    """The verdict of a table, as `projections.rules.rule` defines it."""
    address = ipaddress.ip_address(source)
    for rule in sorted(rules.rules, key=precedence):
        if rule.protocol not in ("any", protocol):
            continue
        pairs = zip(rule.ports[::2], rule.ports[1::2], strict=True)
        if rule.ports and not any(first <= port <= last for first, last in pairs):
            continue
        networks = (ipaddress.ip_network((each[:-1], each[-1])) for each in rules.rules[rule])
        if any(address.version == network.version and address in network for network in networks):
            return rule.action == "allow"
    return False


def packet(rng: random.Random) -> tuple[str, str, int]:
    """A source near those of the rules, a protocol and a port."""
    fixed, width = ((b"\x0a\x00", 4), (b"\x20\x01", 16))[rng.random() < 0.3]
    address = ipaddress.ip_address(fixed + bytes(rng.randrange(3) for _ in range(width - 2)))
    return str(address), rng.choice(("tcp", "udp", "icmp")), rng.choice((0, 22, 80, 85, 91, 443, 65_535))


def flow(source: str, protocol: str, port: int) -> str:
    """A packet in the notation of ovs-ofctl."""
    is_6 = ":" in source
    kind = {"icmp": "icmp6" if is_6 else "icmp"}.get(protocol, f"{protocol}6" if is_6 else protocol)
    ports = "" if protocol == "icmp" else f",{protocol}_dst={port}"
    return f"in_port=1,{kind},{'ipv6_src' if is_6 else 'nw_src'}={source}{ports}"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


async def repaired(device: OpenVSwitch, before: int) -> None:
    await until(lambda: device.counts.repairs > before)


async def test_the_switch_decides_on_every_packet_as_the_table_does(switch: Switch) -> None:
    switch.add_bridge("verdicts")
    rng, old = random.Random(5), EMPTY_TABLE
    verdicts = set()
    async with bridge_device(switch, "verdicts") as device:
        for version in range(1, 9):
            new = table(version, some_rules(rng))
            await changed(device, old, new)
            old = new
            for source, protocol, port in (packet(rng) for _ in range(PACKETS)):
                expected = is_allowed(new, source, protocol, port)
                about = (source, protocol, port, new.rules, switch.flows("verdicts"))
                assert switch.is_forwarded("verdicts", flow(source, protocol, port)) == expected, about
                verdicts.add((protocol, expected))
    assert len(verdicts) == 6, "every protocol was allowed and dropped"


async def test_flows_of_other_programs_stay(switch: Switch) -> None:
    switch.add_bridge("shared")
    for text in ("priority=0,actions=NORMAL", "table=20,priority=9,udp,actions=drop", "table=5,ip,actions=drop"):
        switch.ofctl("add-flow", "shared", text)
    others = switch.flows("shared")
    async with bridge_device(switch, "shared") as device:
        rng = random.Random(6)
        for version in range(1, 10):
            await restored(device, table(version, some_rules(rng)))
            assert set(others) <= set(switch.flows("shared"))
        await restored(device, table(10, {}))
    left = set(switch.flows("shared")) - set(others)
    assert len(left) == 8 and all("cookie=0xd9a5" in line for line in left), (
        "two of table 0, four of neighbor discovery, and the last of each table"
    )


async def test_a_flow_of_another_program_at_the_priority_of_the_hook_is_an_error(switch: Switch) -> None:
    switch.add_bridge("taken")
    switch.ofctl("add-flow", "taken", f"priority={LAYOUT.hook_priority},ip,actions=NORMAL")
    before = switch.flows("taken")
    async with bridge_device(switch, "taken") as device:
        with pytest.raises(DeviceFailed, match="hook-priority: another program has a flow of priority 1000 in table 0"):
            await restored(device, table(1, {Rule(1, "allow", "any", ()): frozenset({prefix("10.0.0.0/8")})}))
        assert switch.flows("taken") == before


def switch_seconds(switch: Switch) -> float:
    """The CPU time of the switch so far."""
    return cpu_seconds(int((switch.folder / "ovs-vswitchd.pid").read_text()))


async def test_a_deletion_costs_the_switch_no_more_than_an_addition(switch: Switch) -> None:
    """An index of the switch by whole cookies would make it quadratic: a deletion would read all flows of its rule."""
    switch.add_bridge("emptied")
    rule, count = Rule(1, "allow", "any", ()), 20_000
    full = table(1, {rule: frozenset(b"\x0a\x00" + number.to_bytes(2, "big") + b"\x20" for number in range(count))})
    few = table(2, {rule: frozenset({prefix("10.1.0.0/16")})})
    async with bridge_device(switch, "emptied") as device:
        await restored(device, few)
        before = switch_seconds(switch)
        await changed(device, few, full)
        added = switch_seconds(switch)
        await changed(device, full, few)
        deleted = switch_seconds(switch)
    assert len(switch.flows("emptied")) < 10
    assert deleted - added < 8 * (added - before)


async def test_a_restarted_switch_is_filled_again(switch: Switch) -> None:
    switch.add_bridge("restarted")
    content = table(1, some_rules(random.Random(9)))
    async with bridge_device(switch, "restarted") as device:
        await restored(device, content)
        before = switch.flows("restarted")
        for _ in range(2):
            count = device.counts.repairs
            switch.kill("ovs-vswitchd")
            switch.start_daemon("ovs-vswitchd")
            await repaired(device, count)
            assert switch.flows("restarted") == before
        assert await device.read_back() == content.digest


async def test_no_session_ends_while_the_switch_is_busy(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread of the switch serves all bridges: the commit of one bridge silences the others for as long."""
    monkeypatch.setattr(session, "ECHO_S", 0.1)
    process = int((switch.folder / "ovs-vswitchd.pid").read_text())
    content = table(1, some_rules(random.Random(9)))
    for bridge in ("busy", "idle"):
        switch.add_bridge(bridge)
    async with bridge_device(switch, "busy") as busy, bridge_device(switch, "idle") as idle:
        await restored(idle, content)
        os.kill(process, signal.SIGSTOP)
        try:
            asked = asyncio.create_task(restored(busy, content))
            await asyncio.sleep(1.0)
        finally:
            os.kill(process, signal.SIGCONT)
        await asked
        for device in (busy, idle):
            device.forget()
            assert await device.read_back() == content.digest
        assert busy.counts.connections == idle.counts.connections == 1


async def test_changed_flows_are_reported_and_repaired_within_the_budget(
    switch: Switch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(openvswitch, "READ_BACK_S", 0.05)
    monkeypatch.setattr(repairs, "REPAIRS_PER_HOUR", 3)
    switch.add_bridge("drifting")
    content = table(1, {Rule(1, "allow", "tcp", (1, 9, 20, 30)): frozenset({prefix("10.0.0.0/8"), prefix("fd00::/8")})})
    async with bridge_device(switch, "drifting") as device:
        await restored(device, content)
        whole = switch.flows("drifting")
        ours = [line for line in whole if "cookie=0xd9a5" in line]
        for line in (ours[0], ours[-1], ours[4]):
            before = device.counts.repairs
            _delete(switch, "drifting", line)
            await repaired(device, before)
            assert switch.flows("drifting") == whole
        _delete(switch, "drifting", ours[-1])
        await until(lambda: device.counts.unrepaired > 0)
        assert await device.read_back() != content.digest, "what is not repaired is reported"
        _delete(switch, "drifting", ours[0])
        await until(lambda: device.counts.unrepaired > 1)
        assert caplog.text.count("is not repaired: repairs within the last hour: 3, its limit") == 2, (
            "once for each state"
        )
        await restored(device, content)
        assert switch.flows("drifting") == whole


async def test_flows_that_the_switch_flushes_are_restored_at_once(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open vSwitch deletes all flows of a bridge that gets its first controller, and keeps the session."""
    monkeypatch.setattr(openvswitch, "READ_BACK_S", 3_600.0)
    switch.add_bridge("flushed")
    content = table(1, some_rules(random.Random(9)))
    async with bridge_device(switch, "flushed") as device:
        await restored(device, content)
        whole = switch.flows("flushed")
        switch.vsctl("set-controller", "flushed", "tcp:127.0.0.1:1")
        await repaired(device, 0)
        assert switch.flows("flushed") == whole
        assert device.counts.connections == 1


async def test_a_bridge_without_any_flow_is_filled_beyond_the_budget(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvswitch, "READ_BACK_S", 0.05)
    monkeypatch.setattr(repairs, "REPAIRS_PER_HOUR", 1)
    switch.add_bridge("unlucky")
    content = table(1, some_rules(random.Random(9)))
    async with bridge_device(switch, "unlucky") as device:
        await restored(device, content)
        whole = switch.flows("unlucky")
        for count in range(1, 4):
            switch.ofctl("del-flows", "unlucky")
            await repaired(device, count - 1)
            assert switch.flows("unlucky") == whole
        _delete(switch, "unlucky", whole[-1])
        await until(lambda: device.counts.unrepaired > 0)


async def test_a_flow_that_would_expire_is_repaired(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvswitch, "READ_BACK_S", 0.05)
    switch.add_bridge("expiring")
    content = table(1, {Rule(1, "allow", "any", ()): frozenset({prefix("10.0.0.0/8")})})
    async with bridge_device(switch, "expiring") as device:
        await restored(device, content)
        whole = switch.flows("expiring")
        for timeout in ("idle_timeout=60000", "hard_timeout=60000"):
            before = device.counts.repairs
            line = next(each for each in whole if "nw_src" in each)
            switch.ofctl("add-flow", "expiring", f"{timeout},{line}")
            await repaired(device, before)
            assert switch.flows("expiring") == whole


async def test_a_copied_cookie_does_not_move_the_flows_of_its_rule(switch: Switch) -> None:
    """A flow of another program may have any priority that a rule may have, and be the last one that is read."""
    switch.add_bridge("kept")
    rule = Rule(1, "allow", "any", ())
    content = table(1, {rule: frozenset(prefix(f"10.0.0.{number}/32") for number in range(20))})
    async with bridge_device(switch, "kept") as device:
        await restored(device, content)
    whole = switch.flows("kept")
    for source in ("1.2.3.4", "172.16.0.1", "192.168.7.7", "203.0.113.9"):
        stray = f"priority=500,ip,nw_src={source},actions=drop"
        switch.ofctl("add-flow", "kept", f"cookie={rule_cookie(rule):#x},table=20,{stray}")
        async with bridge_device(switch, "kept") as device:
            await restored(device, content)
        assert switch.flows("kept") == whole


@pytest.mark.parametrize("place", ["table=200,priority=7", "table=20,priority=0", "table=20,priority=65535"])
async def test_a_rule_does_not_take_the_priority_of_a_copied_cookie(switch: Switch, place: str) -> None:
    bridge = f"copied{place[6:8]}{place[-3:].strip('y=')}"
    switch.add_bridge(bridge)
    rule = Rule(1, "allow", "any", ())
    content = table(1, {rule: frozenset({prefix("10.0.0.0/8")})})
    switch.ofctl("add-flow", bridge, f"cookie={rule_cookie(rule):#x},{place},ip,nw_src=10.1.2.3,actions=drop")
    async with bridge_device(switch, bridge) as device:
        await restored(device, content)
    (found,) = [line for line in switch.flows(bridge) if "nw_src" in line]
    assert "priority=32508,ip,nw_src=10.0.0.0/8" in found, "that of the only rule of a table"


def _delete(switch: Switch, bridge: str, line: str) -> None:
    """Delete a flow, given as ovs-ofctl prints it."""
    words = line.partition(" actions=")[0].replace(",", " ").split()
    switch.ofctl("del-flows", bridge, "--strict", ",".join(word for word in words if "cookie=" not in word))


async def test_agents_of_several_bridges_keep_their_rules_over_restarts(switch: Switch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        switch.add_bridge(name)
    async with serving("--data", str(tmp_path / "plane")) as plane:
        server = plane.address("api")
        await run("nodes", "join", "n1", "--zone", "a", "--address", "10.0.0.1", server=server)
        for dpu in ("src/d1", "src/d2"):
            assert (await run("dpus", "register", dpu, "--zone", "a", server=server)).status == 0
        flags = ["--relay", plane.address("agents"), "--zone", "a", "--state", str(tmp_path / "state")]
        flags += ["--backend", "openvswitch", "--openvswitch-run", str(switch.folder)]
        flags += ["--dpu", "src/d1", "--bridge", "one", "--dpu", "src/d2", "--bridge", "two"]
        async with started("agent", *flags) as agent:
            assert agent.ready.startswith("ready dpu=src/d1,src/d2 zone=a")
            await until(lambda: all(_forwards(switch, name, "10.0.0.1") for name in ("one", "two")))
            await run("nodes", "join", "n2", "--zone", "a", "--address", "10.0.0.2", server=server)
            await until(lambda: all(_forwards(switch, name, "10.0.0.2") for name in ("one", "two")))
            assert not _forwards(switch, "one", "10.0.0.3")
            assert (await run("verify", server=server)).status == 0
            assert await agent.stop() == 0
        assert _forwards(switch, "one", "10.0.0.2"), "an agent that ends leaves its rules"
    switch.kill("ovs-vswitchd")
    switch.start_daemon("ovs-vswitchd")
    assert not _forwards(switch, "two", "10.0.0.2")
    async with started("agent", *flags):  # no relay is there: the stored table is installed
        await until(lambda: all(_forwards(switch, name, "10.0.0.2") for name in ("one", "two")))


def _forwards(switch: Switch, bridge: str, source: str) -> bool:
    return switch.is_forwarded(bridge, flow(source, "tcp", 80))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--backend", "openvswitch"), "bridge: give one for each --dpu, here 1 DPU but no bridges"),
        (
            ("--backend", "openvswitch", "--bridge", "br0", "--bridge", "br1"),
            "bridge: give one for each --dpu, here 1 DPU but 2 bridges",
        ),
        (("--bridge", "br0"), "bridge: the backend simulated has no bridges"),
        (("--backend", "openvswitch", "--bridge", "br/0"), "'br/0' must be the name of a bridge"),
        (("--allowed", "table:300"), "'table:300' must be normal, chains, or table:N with N up to 253"),
        (
            ("--backend", "openvswitch", "--bridge", "br0", "--allowed", "table:20"),
            "allowed: table 20 is the table of the rules",
        ),
        (
            ("--backend", "openvswitch", "--bridge", "br0", "--chain-table", "20"),
            "chain-table: table 20 must come after 20, the table of the rules",
        ),
    ],
)
async def test_wrong_options_are_named(arguments: tuple[str, ...], said: str) -> None:
    ran = await run("agent", "--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "d1", *arguments)
    assert (ran.status, said in ran.stderr) == (2, True), ran.stderr


async def test_more_rules_than_a_switch_can_order_are_refused_and_end_nothing(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_flows, "PRIORITY_MAX", rule_flows.PRIORITY_MIN + 3)
    many = {Rule(number, "allow", "any", ()): frozenset({prefix("10.0.0.0/8")}) for number in range(5)}
    device = OpenVSwitch(switch.socket("crowded"), LAYOUT, rng=random.Random(1))
    with pytest.raises(DeviceFailed, match="the bridge is not connected"):
        await restored(device, table(1, many))
    switch.add_bridge("crowded")
    running = asyncio.create_task(device.run())  # checks the bridge against that table at once
    await until(lambda: not device.fault)
    with pytest.raises(DeviceFailed, match="5 rules are more than a switch can order"):
        await restored(device, table(1, many))
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


async def test_a_bridge_that_is_not_there_is_named_and_awaited(switch: Switch) -> None:
    device = OpenVSwitch(switch.socket("later"), LAYOUT, rng=random.Random(1))
    running = asyncio.create_task(device.run())
    content = table(1, {Rule(1, "allow", "any", ()): frozenset({prefix("10.0.0.0/8")})})
    await until(lambda: device.fault.startswith("Open vSwitch has no bridge 'later': "))
    with pytest.raises(DeviceFailed, match="the bridge is not connected"):
        await restored(device, content)
    switch.add_bridge("later")
    await until(lambda: device.counts.repairs == 1)
    assert await device.read_back() == content.digest
    running.cancel()
    await asyncio.wait({running})
