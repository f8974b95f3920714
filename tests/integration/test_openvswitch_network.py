"""The network document in a real Open vSwitch: its flows, ports of all types, and what belongs to other programs."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from deploy.host.openvswitch import Switch
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import FileNetworkStore, HeldNetwork, MemoryNetworkStore
from drivers.agents.store import MemoryTableStore
from drivers.backends import openvswitch_network
from drivers.backends.device import DeviceFailed, Programmed
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.backends.simulated import SimulatedDevice
from drivers.openflow.session import SwitchRefused, SwitchSession, Watched
from drivers.wire.agent_messages import NO_DIGEST
from drivers.wire.links import Link, memory_link_pair
from projections.resources import kinds
from projections.resources.network_documents.document import Document, Interface, encoded
from projections.rules.rule import Rule
from tests.contract.device import restored, table
from tests.contract.network_device import chain, digest_of, physical, programmed, read_until
from tests.support.memory_plane import plane
from tests.support.openvswitch import LAYOUT, bridge_device, bridge_network
from tests.support.planes import started
from tests.unit.test_network_handover import chain as chain_object
from tests.unit.test_network_handover import fleet_of, observed
from tests.unit.test_network_link import relays_of
from tests.unit.test_network_link import service as service_object

MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"


@pytest.fixture
def bridge(switch: Switch) -> Iterator[str]:
    """A bridge with ports 1 and 2 of another program."""
    switch.add_bridge("br0")
    yield "br0"
    switch.vsctl("del-br", "br0")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


async def whole(device: OpenVSwitchNetwork, document: Document, unresolved: tuple[str, ...] = ()) -> None:
    """Wait until the bridge has everything of a document but these interfaces."""
    await read_until(device, lambda found: found == Programmed(digest_of(document), unresolved))


def flows(switch: Switch, bridge: str) -> list[str]:
    """The flows of chains that nobody learned, without their cookies."""
    found = (line for line in switch.flows(bridge) if "cookie=0xd9a6" in line)
    return sorted(re.sub(r"cookie=0x[0-9a-f]+,? ?", "", line) for line in found)


def number(switch: Switch, port: str) -> str:
    return switch.vsctl("get", "interface", port, "ofport").strip()


def service(name: str, service_id: str, end: str) -> Interface:
    settings = {"serviceID": service_id, "network": "mybrsfc", "interfaceName": end}
    return Interface(name, "service", settings=settings)


def vlan(name: str, parent: str, tag: int, mtu: int = 1500) -> Interface:
    return Interface(name, "vlan", mtu=mtu, settings={"vlanID": tag, "parentInterfaceRef": parent})


def patch(name: str, peer: str, **settings: object) -> Interface:
    return Interface(name, "patch", settings={"peerBridge": peer, **settings})


async def test_a_chain_has_dpfs_tables_and_priorities(switch: Switch, bridge: str) -> None:
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
    a, b = number(switch, "p0"), number(switch, "p1")
    expected = []
    for port, other in ((a, b), (b, a)):
        learn = (
            f"learn(table=31,idle_timeout=10,priority=1,delete_learned,in_port={other},"
            "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])"
        )
        expected += [
            f"priority=999,in_port={port} actions=goto_table:30",
            f"table=30, priority=1,in_port={port} actions={learn},goto_table:31",
            f"table=31, priority=2,in_port={port},{MULTICAST} actions=output:{other}",
            f"table=31, priority=0,in_port={port} actions=output:{other}",
        ]
    assert flows(switch, bridge) == sorted(expected)


async def test_ptp_messages_go_between_a_service_and_the_physical_interface_of_its_switch(
    switch: Switch, bridge: str
) -> None:
    uplink, other = physical("p0"), physical("p1")
    clock = replace(service("dpf/clock", "clock", "eth1"), ptp=True)
    document = Document(
        interfaces=(uplink, other, clock), switches=(chain("ptp", uplink, clock), chain("data", other, clock))
    )
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
        assert not [flow for flow in flows(switch, bridge) if "priority=50," in flow], "the service has no port yet"
        add_port(switch, bridge, "veth", dpf_id="dpf/clock-x/eth1")
        await whole(device, document)
        near, far, own = (number(switch, port) for port in ("p0", "p1", "veth"))
        found = [flow for flow in flows(switch, bridge) if "priority=50," in flow]
        outputs = {near: own, far: own, own: f"{near},output:{far}"}
        address = "dl_dst=01:80:c2:00:00:0e"
        assert found == sorted(
            f"table=30, priority=50,in_port={at},{address} actions=output:{to}" for at, to in outputs.items()
        )
        assert switch.outputs(bridge, f"in_port={near},{address},dl_type=0x88f7") == {"veth"}


async def test_an_interface_of_a_vlan_shares_the_port_of_its_parent(switch: Switch, bridge: str) -> None:
    parent, other, tagged, far = physical("p0"), physical("p1"), vlan("dpf/v100", "p0", 100, 9000), physical("p2")
    document = Document(
        interfaces=(parent, other, tagged, far),
        switches=(chain("plain", parent, other), chain("tagged", tagged, far, mtu=9000)),
    )
    async with bridge_network(switch, bridge) as device:
        assert await programmed(device, document) == Programmed(digest_of(document))
    a, c = number(switch, "p0"), number(switch, "p2")
    found = flows(switch, bridge)
    assert f"table=31, priority=5,in_port={a},dl_vlan=100,{MULTICAST} actions=pop_vlan,output:{c}" in found
    assert f"table=31, priority=3,in_port={a},dl_vlan=100 actions=pop_vlan,output:{c}" in found
    pushed = f"push_vlan:0x8100,set_field:4196->vlan_vid,output:{a}"
    assert f"table=31, priority=0,in_port={c},vlan_tci=0x0000/0x1000 actions={pushed}" in found
    assert f"table=30, priority=1,in_port={c} actions=drop" in found, "a tagged packet would lose its tag"
    assert switch.vsctl("get", "interface", "p0", "mtu_request").strip() == "9000", "the largest of its VLANs"


async def test_multicast_reaches_exactly_the_other_ports_of_all_switches_of_a_port(switch: Switch, bridge: str) -> None:
    ports = {name: physical(name) for name in ("m1", "m2", "m3", "m4", "m5")}
    switches = (chain("one", ports["m1"], ports["m2"], ports["m3"]), chain("two", ports["m3"], ports["m4"]))
    document = Document(interfaces=tuple(ports.values()), switches=switches)
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
    reached = {
        name: switch.outputs(bridge, f"in_port={number(switch, name)},arp,dl_dst=ff:ff:ff:ff:ff:ff") for name in ports
    }
    assert reached == {"m1": {"m2", "m3"}, "m2": {"m1", "m3"}, "m3": {"m1", "m2", "m4"}, "m4": {"m3"}, "m5": set()}


async def test_ports_and_flows_of_other_programs_stay(switch: Switch, bridge: str) -> None:
    for text in ("priority=0,actions=NORMAL", "table=31,priority=9,udp,actions=drop", "table=5,actions=drop"):
        switch.ofctl("add-flow", bridge, text)
    others = switch.flows(bridge)
    switch.vsctl("add-port", bridge, "p0", "--", "set", "port", "p0", "external_ids:whose=theirs")
    async with bridge_network(switch, bridge) as device:
        near, far = physical("p0", 9000), physical("p1", 9000)
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        switch.vsctl("set", "port", "p1", "external_ids:note=kept")
        await programmed(device, Document(interfaces=(near, physical("p1")), switches=(chain("chain", near, far),)))
        assert set(others) <= set(switch.flows(bridge))
        ids = switch.vsctl("get", "port", "p1", "external_ids")
        assert "note=kept" in ids and "dpf-type=physical" in ids, "ids of others on ports of the plane stay, too"
        assert switch.vsctl("get", "interface", "p1", "mtu_request").strip() == "1500"
        assert switch.vsctl("get", "interface", "p0", "mtu_request").strip() == "[]"
        await programmed(device, Document())
    assert switch.flows(bridge) == others
    assert set(switch.vsctl("list-ports", bridge).split()) == {f"{bridge}-1", f"{bridge}-2", "p0"}


async def test_a_restarted_agent_changes_nothing(switch: Switch, bridge: str) -> None:
    near, far = physical("p0"), physical("p1")
    document = Document(interfaces=(near, far), switches=(chain("chain", near, far),))
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
    await asyncio.sleep(1.1)
    async with bridge_network(switch, bridge) as device:
        assert (await device.read_back()).digest == NO_DIGEST, "it has not been told the document yet"
        await programmed(device, document)
    ages = re.findall(r"cookie=0xd9a6\w+, duration=(\d+)\.", switch.ofctl("dump-flows", bridge))
    assert len(ages) == 8 and all(int(age) >= 1 for age in ages), "no flow was written again"


async def test_a_port_of_another_bridge_is_awaited_and_the_others_are_connected(switch: Switch, bridge: str) -> None:
    switch.add_bridge("br1", ports=0)
    switch.vsctl("add-port", "br1", "p0")
    near, far, third = physical("p0"), physical("p1"), physical("p2")
    document = Document(interfaces=(near, far, third), switches=(chain("chain", near, far, third),))
    async with bridge_network(switch, bridge) as device:
        assert await programmed(device, document) == Programmed(digest_of(document), ("dpf/p0",))
        assert device.waiting == {"dpf/p0": "the bridge br1 to release the port p0"}
        assert switch.outputs(bridge, f"in_port={number(switch, 'p1')},arp") == {"p2"}
        switch.vsctl("del-port", "br1", "p0")
        await whole(device, document)
        assert switch.outputs(bridge, f"in_port={number(switch, 'p1')},arp") == {"p0", "p2"}
    switch.vsctl("del-br", "br1")


@pytest.mark.parametrize("is_alone", [False, True])
async def test_an_interface_in_a_bond_is_awaited_and_the_others_are_connected(
    switch: Switch, bridge: str, is_alone: bool
) -> None:
    """An interface has one name in the whole database, which would refuse a transaction with a second one. A bond with
    one member left is a port like others, but of another name."""
    near, bonded = physical("p0"), physical("b0")
    document = Document(interfaces=(near, bonded), switches=(chain("chain", near, bonded),))
    switch.vsctl("add-bond", bridge, "bond0", "b0", "b1")
    if is_alone:
        switch.vsctl("del-bond-iface", "bond0", "b1")
    async with bridge_network(switch, bridge) as device:
        assert (await programmed(device, document)).unresolved == (bonded.name,)
        assert device.waiting == {bonded.name: "the port bond0 to release the interface b0"}
        assert any(f"in_port={number(switch, 'p0')}" in line for line in flows(switch, bridge))
        switch.vsctl("del-port", "bond0")
        await whole(device, document)


async def test_a_patch_is_made_on_both_bridges_and_removed_from_both(switch: Switch, bridge: str) -> None:
    near = physical("p0")
    peer = patch("dpf/to-hbn", "br-hbn", peerPatchName="to-sfc", peerExternalIDs={"hbn": "yes"})
    ovn = Interface("dpf/ovn", "ovn", "puplinkbrsfc", settings={"peerBridge": "br-ovn"})
    document = Document(interfaces=(near, peer, ovn), switches=(chain("chain", near, peer, ovn),))
    async with bridge_network(switch, bridge) as device:
        assert (await programmed(device, document)).unresolved == ("dpf/to-hbn", "dpf/ovn")
        assert device.waiting["dpf/to-hbn"] == "the bridge br-hbn to exist"
        switch.add_bridge("br-hbn", ports=0)
        await whole(device, document, ("dpf/ovn",))
        own = next(name for name in switch.vsctl("list-ports", bridge).split() if name.startswith("p_br0_to_br-hbn_"))
        assert switch.vsctl("get", "interface", "to-sfc", "options:peer").strip() == f'"{own}"'.strip('"')
        assert "hbn=" in switch.vsctl("get", "interface", "to-sfc", "external_ids")
        switch.add_bridge("br-ovn", ports=0)
        await whole(device, document)
        assert switch.vsctl("list-ports", "br-ovn").split() == ["puplinkbrovn"]
        await programmed(device, Document(interfaces=(near,)))
        assert not switch.vsctl("list-ports", "br-hbn") and not switch.vsctl("list-ports", "br-ovn")
    switch.vsctl("del-br", "br-hbn", "--", "del-br", "br-ovn")


async def test_a_name_that_another_program_uses_otherwise_is_not_taken(switch: Switch, bridge: str) -> None:
    switch.add_bridge("br-hbn", ports=0)
    add_port(switch, "br-hbn", "to-sfc")
    near, own, taken = physical("p0"), physical(bridge), patch("dpf/to-hbn", "br-hbn", peerPatchName="to-sfc")
    document = Document(interfaces=(near, own, taken), switches=(chain("chain", near, own, taken),))
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
        assert device.waiting == {
            f"dpf/{bridge}": f"the device {bridge} to exist",  # the bridge's own port is in no chain
            "dpf/to-hbn": "another program's port to-sfc of the bridge br-hbn to go",
        }
        assert switch.vsctl("get", "interface", "to-sfc", "type").strip() == '""'
        switch.vsctl("del-port", "br-hbn", "to-sfc")
        await whole(device, document, (f"dpf/{bridge}",))
        assert switch.vsctl("get", "interface", "to-sfc", "type").strip() == "patch"
    switch.vsctl("del-br", "br-hbn")


def add_port(switch: Switch, bridge: str, name: str, **ids: str) -> None:
    words = [f"external_ids:{key.replace('_', '-')}={value}" for key, value in ids.items()]
    switch.vsctl("add-port", bridge, name, *(["--", "set", "interface", name, *words] if words else []))


async def test_the_port_of_a_service_is_that_of_its_pod(switch: Switch, bridge: str) -> None:
    web, log, hbn = service("dpf/w", "web", "if0"), service("dpf/l", "log", "if0"), service("dpf/h", "hbn", "p0_if")
    document = Document(interfaces=(web, log, hbn), switches=(chain("chain", web, log, hbn),))
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
        assert device.waiting["dpf/w"] == "a port with the external id dpf-id=dpf/POD/if0"
        add_port(switch, bridge, "veth1", dpf_id="dpf/log-abcde/if0")
        await whole(device, document, ("dpf/w", "dpf/h"))
        add_port(switch, bridge, "veth2", dpf_id="other/web-abcde/if0")  # of another namespace
        add_port(switch, bridge, "pp0_ifbrsfc")
        await whole(device, document, ("dpf/w",))
        add_port(switch, bridge, "veth3", dpf_id="dpf/web-abcde/if0")
        await whole(device, document)
        assert switch.outputs(bridge, f"in_port={number(switch, 'veth1')},arp") == {"veth3", "pp0_ifbrsfc"}
        add_port(switch, bridge, "veth4", dpf_id="dpf/web-fghij/if0")
        await whole(device, document, ("dpf/w",))
        switch.vsctl("del-port", bridge, "veth3")
        await whole(device, document)
        assert switch.outputs(bridge, f"in_port={number(switch, 'veth1')},arp") == {"veth4", "pp0_ifbrsfc"}


async def test_the_interval_of_checks_ends_while_the_database_changes_all_the_time(
    switch: Switch, bridge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch_refused(session: SwitchSession, watched: Sequence[Watched]) -> None:
        raise SwitchRefused("this version has no monitors")

    monkeypatch.setattr(SwitchSession, "watch", watch_refused)
    monkeypatch.setattr(openvswitch_network, "CHECK_S", 2.0)
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        expected = flows(switch, bridge)
        switch.ofctl("del-flows", bridge, "table=31")
        async with asyncio.timeout(60):
            while flows(switch, bridge) != expected:
                change = ("set", "interface", f"{bridge}-1", f"external_ids:x={random.random()}")
                await asyncio.to_thread(switch.vsctl, *change)
                await asyncio.sleep(0.1)


async def test_a_flow_of_another_program_at_the_priority_of_the_hooks_is_an_error(switch: Switch, bridge: str) -> None:
    switch.ofctl("add-flow", bridge, f"priority={LAYOUT.hook_priority - 1},ip,actions=NORMAL")
    near, far = physical("p0"), physical("p1")
    async with bridge_network(switch, bridge) as device:
        with pytest.raises(DeviceFailed, match="hook-priority: another program has a flow of priority 999 in table 0"):
            await programmed(device, Document(interfaces=(near, far), switches=(chain("chain", near, far),)))
        assert not flows(switch, bridge)


async def test_packets_of_chains_meet_the_rules_first(switch: Switch, bridge: str) -> None:
    near, far = physical("p0"), physical("p1")
    document = Document(interfaces=(near, far), switches=(chain("chain", near, far),))
    rules = table(1, {Rule(1, "allow", "any", ()): frozenset({b"\x0a\x00\x00\x01\x20"})})
    switch.ofctl("add-flow", bridge, "priority=0,actions=NORMAL")
    async with bridge_network(switch, bridge) as device, bridge_device(switch, bridge) as rule_device:
        await programmed(device, document)
        before = flows(switch, bridge)
        await restored(rule_device, rules)
        assert flows(switch, bridge) == before, "neither touches the flows of the other"
        assert (await device.read_back()).digest == digest_of(document)
        rule_device.forget()
        assert await rule_device.read_back() == rules.digest
        a = number(switch, "p0")
        assert switch.outputs(bridge, f"in_port={a},ip,nw_src=10.0.0.1") == {"p1"}
        assert switch.outputs(bridge, f"in_port={a},ip,nw_src=10.0.0.2") == set()
        assert switch.outputs(bridge, f"in_port={a},arp") == {"p1"}, "packets that are not IP meet no rule"
        tagged = f"in_port={a},dl_vlan=7,dl_vlan_pcp=0,ip,nw_src=10.0.0.2"
        assert switch.outputs(bridge, tagged) == set(), "a tag is no way around the rules"
        others = {"p0", "p1", f"{bridge}-2"}
        assert others <= switch.outputs(bridge, "in_port=1,ip,nw_src=10.0.0.1"), "a port in no chain: as before"
        await programmed(device, Document())
        assert switch.outputs(bridge, f"in_port={a},arp") == set(), "the port is gone"


async def test_a_document_is_taken_for_later_while_the_switch_is_away(switch: Switch, bridge: str) -> None:
    near, far = physical("p0"), physical("p1")
    document = Document(interfaces=(near, far), switches=(chain("chain", near, far),))
    async with bridge_network(switch, bridge) as device:
        await programmed(device, document)
        expected = flows(switch, bridge)
        for connections, name in enumerate(("ovs-vswitchd", "ovsdb-server"), 2):
            switch.kill(name)
            await until(lambda: bool(device.fault))
            with pytest.raises(DeviceFailed, match="the bridge is not connected: "):
                await programmed(device, Document())
            switch.start_daemon(name)
            await until(partial(_has_connected, device, connections))
            await whole(device, document)
            assert flows(switch, bridge) == expected


async def test_an_agent_without_a_relay_restores_its_saved_document(
    switch: Switch, bridge: str, tmp_path: Path
) -> None:
    near, far = physical("p0"), physical("p1")
    document = Document(interfaces=(near, far), switches=(chain("chain", near, far),))
    found = encoded(document)
    saved = HeldNetwork(1, 5, digest_of(document), found.text.encode())
    FileNetworkStore(tmp_path / "src@d1.network", "src/d1", "a").save(saved)
    flags = ["--relay", "127.0.0.1:9", "--zone", "a", "--dpu", "src/d1", "--state", str(tmp_path)]
    flags += ["--backend", "openvswitch", "--bridge", bridge, "--openvswitch-run", str(switch.folder)]
    async with started("agent", *flags) as agent:
        await until(lambda: len(flows(switch, bridge)) == 8)
        assert await agent.stop() == 0
    assert switch.outputs(bridge, f"in_port={number(switch, 'p0')},arp") == {"p1"}, "an ended agent leaves its chains"


async def test_a_chain_goes_from_its_objects_over_a_relay_to_the_bridge(switch: Switch, bridge: str) -> None:
    async with plane() as on, bridge_network(switch, bridge) as device:
        fleet = await fleet_of(on, "h1")  # with a chain of p0 and p1
        relays = await relays_of(on, "r1")
        links: list[asyncio.Task[None]] = []

        async def dial(address: str) -> Link:
            theirs, ours = memory_link_pair(address, "h1-dh1")
            links.append(asyncio.create_task(relays[address].serve(theirs)))
            return ours

        rng = random.Random(1)
        agent = Agent(
            AgentIdentity("z1", "h1-dh1", "boot-1"),
            [*relays],
            dial=dial,
            device=SimulatedDevice(rng=rng),
            store=MemoryTableStore(),
            rng=rng,
            network=AgentNetwork(device, MemoryNetworkStore()),
        )
        running = asyncio.create_task(agent.run())
        await on.until(lambda: observed(fleet).get("ready") is True, timeout_s=60)
        assert switch.outputs(bridge, f"in_port={number(switch, 'p0')},arp") == {"p1"}
        await fleet.apply(kinds.DPU_SERVICE_INTERFACE, {"app": service_object("app")})
        await fleet.apply(kinds.DPU_SERVICE_CHAIN, {"web": chain_object("app", "p0")})
        await on.until(
            lambda: "dpf/app has no port yet, waits for a pod of service" in observed(fleet).get("message", ""),
            timeout_s=60,
        )
        add_port(switch, bridge, "veth0", dpf_id="dpf/app-abcde/eth1")
        await on.until(lambda: observed(fleet).get("ready") is True, timeout_s=60)
        assert switch.outputs(bridge, f"in_port={number(switch, 'p0')},arp") == {"veth0"}
        for task in (running, *links):
            task.cancel()
        await asyncio.wait({running, *links})


def _has_connected(device: OpenVSwitchNetwork, times: int) -> bool:
    return device.counts.connections >= times
