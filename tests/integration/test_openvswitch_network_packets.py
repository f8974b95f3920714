"""Real packets through chains: they reach the other interfaces of their chain, with or without tags, and no others."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator

import pytest

from deploy.host.openvswitch import Switch
from projections.resources.network_documents.document import Document, Interface
from projections.rules.rule import Rule
from tests.contract.device import restored, table
from tests.contract.network_device import chain, digest_of, programmed, read_until
from tests.support.frames import Frame, Wire, inside, reaches
from tests.support.openvswitch import bridge_device, bridge_network, switch_folder
from tests.support.probes import SO_NO_CHECK
from tests.support.requirements import missing_requirement

BROADCAST = "ff:ff:ff:ff:ff:ff"
NET, HOST = "10.78.0.1", "10.78.0.2"
JUMBO = 9000
PORT, SILENT_S = 7_000, 2.0
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Lab:
    """A bridge, and namespaces with wires to it: the interface `end` of a namespace is the port that `wire` returns."""

    def __init__(self, switch: Switch, tag: str) -> None:
        self.switch = switch
        self.bridge = f"b{tag}"
        self._tag = tag
        self._names: list[str] = []

    def namespace(self, name: str) -> str:
        """The namespace of this name."""
        full = f"{name}-{self._tag}"
        if full not in self._names:
            _ip("netns", "add", full)
            self._names.append(full)
            subprocess.run(
                ["ip", "netns", "exec", full, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"],
                check=True,
            )
        return full

    def wire(self, name: str, end: str = "eth0") -> str:
        """Lay a wire to a namespace. Returns the name of the port, which is not on the bridge yet."""
        port = f"{name[:4]}{end[-1]}{self._tag}"
        namespace = self.namespace(name)
        _ip("link", "add", port, "type", "veth", "peer", "name", end, "netns", namespace)
        _ip("link", "set", port, "up")
        _ip("-n", namespace, "link", "set", end, "up")
        return port

    def clear(self) -> None:
        for name in self._names:
            _ip("netns", "delete", name)
        self._names.clear()


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    if os.geteuid() != 0:
        missing_requirement("network namespaces need root")
    with switch_folder(has_packets=True) as found:
        yield found


@pytest.fixture
def lab(switch: Switch) -> Iterator[Lab]:
    found = Lab(switch, secrets.token_hex(3))
    switch.add_bridge(found.bridge, ports=0)
    switch.ofctl("add-flow", found.bridge, "priority=0,actions=NORMAL")
    try:
        yield found
    finally:
        switch.vsctl("del-br", found.bridge)
        found.clear()


@pytest.fixture
def wires(lab: Lab) -> Iterator[dict[str, Wire]]:
    """Wires a to d, whose ports are `ports`, and x, the port of another program."""
    for name in "abcd":
        lab.wire(name)
    lab.switch.vsctl("add-port", lab.bridge, lab.wire("x"))
    found = {name: Wire(lab.namespace(name)) for name in "abcdx"}
    yield found
    for wire in found.values():
        wire.close()


def port(lab: Lab, name: str, mtu: int = 1500) -> Interface:
    return Interface(f"dpf/{name}", "physical", f"{name}0{lab.bridge[1:]}", mtu)


async def test_a_chain_learns_and_keeps_its_packets_to_itself(lab: Lab, wires: dict[str, Wire]) -> None:
    a, b, c, d = (port(lab, name) for name in "abcd")
    three = Document(interfaces=(a, b, c, d), switches=(chain("chain", a, b, c),))
    async with bridge_network(lab.switch, lab.bridge) as device:
        assert not (await programmed(device, three)).unresolved
        flooded = {"b": 0, "c": 0}
        await reaches(wires, "a", Frame(mac(2), mac(1)), flooded, may={})
        await reaches(wires, "a", Frame(BROADCAST, mac(1)), flooded, may={})
        await reaches(wires, "b", Frame(mac(1), mac(2)), {"a": 0}, may={"a": 0, "c": 0})
        await reaches(wires, "a", Frame(mac(2), mac(1)), {"b": 0}, may=flooded)
        await reaches(wires, "c", Frame(mac(2), mac(3)), {"b": 0}, may={"a": 0, "b": 0})
        # The address moves: its packets come from c now.
        await reaches(wires, "c", Frame(BROADCAST, mac(2)), {"a": 0, "b": 0}, may={})
        await reaches(wires, "a", Frame(mac(2), mac(1)), {"c": 0}, may=flooded)
        # What was learned of c is forgotten in the bundle that takes it out of the chain.
        await programmed(device, Document(interfaces=(a, b, c, d), switches=(chain("chain", a, b),)))
        await reaches(wires, "a", Frame(mac(2), mac(1)), {"b": 0}, may={"c": 0})
        await reaches(wires, "a", Frame(BROADCAST, mac(1), vlan=7), {"b": 7}, may={})


async def test_an_interface_of_a_vlan_has_the_tagged_packets_of_its_parent(lab: Lab, wires: dict[str, Wire]) -> None:
    a, b, c, d = (port(lab, name) for name in "abcd")
    tagged = Interface("dpf/v100", "vlan", settings={"vlanID": 100, "parentInterfaceRef": "a"})
    other = Interface("dpf/v200", "vlan", settings={"vlanID": 200, "parentInterfaceRef": "d"})
    document = Document(
        interfaces=(a, b, c, d, tagged, other), switches=(chain("vlans", tagged, b, other), chain("plain", a, c))
    )
    async with bridge_network(lab.switch, lab.bridge) as device:
        assert not (await programmed(device, document)).unresolved
        both = {"b": 0, "d": 200}
        await reaches(wires, "a", Frame(BROADCAST, mac(1), vlan=100), both, may={})
        await reaches(wires, "b", Frame(mac(1), mac(2)), {"a": 100}, may={"d": 200})
        await reaches(wires, "d", Frame(mac(1), mac(4), vlan=200), {"a": 100}, may={"b": 0})
        await reaches(wires, "a", Frame(mac(2), mac(1), vlan=100), {"b": 0}, may=both)
        await reaches(wires, "a", Frame(mac(4), mac(1), vlan=100), {"d": 200}, may=both)
        await reaches(wires, "a", Frame(BROADCAST, mac(1)), {"c": 0}, may={})
        await reaches(wires, "a", Frame(BROADCAST, mac(1), vlan=300), {"c": 300}, may={})
        await reaches(wires, "b", Frame(BROADCAST, mac(2), vlan=100), {}, may={})
        await reaches(wires, "b", Frame(BROADCAST, mac(2)), {"a": 100, "d": 200}, may={})


async def test_rules_decide_before_a_chain_does(lab: Lab, wires: dict[str, Wire]) -> None:
    a, b = port(lab, "a"), port(lab, "b")
    document = Document(interfaces=(a, b), switches=(chain("chain", a, b),))
    rules = table(1, {Rule(1, "allow", "any", ()): frozenset({b"\x0a\x00\x00\x01\x20"})})
    async with bridge_network(lab.switch, lab.bridge) as device, bridge_device(lab.switch, lab.bridge) as rule_device:
        await programmed(device, document)
        await restored(rule_device, rules)
        await reaches(wires, "a", Frame(BROADCAST, mac(1), address="10.0.0.1"), {"b": 0}, may={})
        await reaches(wires, "b", Frame(mac(1), mac(2), address="10.0.0.1"), {"a": 0}, may={})
        await reaches(wires, "a", Frame(mac(2), mac(1), address="10.0.0.2"), {}, may={"b": 0})
        await reaches(wires, "a", Frame(mac(2), mac(1), vlan=5, address="10.0.0.2"), {}, may={})
        await reaches(wires, "a", Frame(mac(2), mac(1)), {"b": 0}, may={})
        await restored(rule_device, table(2, {}))
        await reaches(wires, "a", Frame(mac(2), mac(1), address="10.0.0.1"), {}, may={"b": 0})


def service(lab: Lab, name: str, number: int) -> Interface:
    """An interface of a service that passes on what it gets: its pod is a namespace with a bridge between two ends."""
    return Interface(
        f"dpf/{name}-{number}", "service", settings={"serviceID": name, "network": "n", "interfaceName": f"if{number}"}
    )


def start_pod(lab: Lab, name: str) -> None:
    """Start the pod of a service, and add its ports to the bridge as the CNI plugin does."""
    namespace = lab.namespace(name)
    _ip("-n", namespace, "link", "add", "inner", "mtu", str(JUMBO), "type", "bridge")
    for number in (1, 2):
        found = lab.wire(name, f"eth{number}")
        _ip("link", "set", found, "mtu", str(JUMBO))
        _ip("-n", namespace, "link", "set", f"eth{number}", "mtu", str(JUMBO), "master", "inner")
        ids = f"external_ids:dpf-id=dpf/{name}-x1/if{number}"
        lab.switch.vsctl("add-port", lab.bridge, found, "--", "set", "interface", found, ids)
    _ip("-n", namespace, "link", "set", "inner", "up")


def _socket(lab: Lab, name: str, address: str) -> socket.socket:
    """A socket in a namespace, which sends datagrams without checksums and does not fragment them."""
    with inside(lab.namespace(name)):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    found.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    found.bind((address, PORT))
    found.setblocking(False)
    return found


async def answers(lab: Lab, size: int, within_s: float = 60.0) -> bool:
    """Whether a datagram of this size goes from the net to the host, and back."""
    loop = asyncio.get_running_loop()
    with _socket(lab, "net", NET) as near, _socket(lab, "host", HOST) as far:

        async def echo() -> None:
            while True:
                data, sender = await loop.sock_recvfrom(far, 65_536)
                await loop.sock_sendto(far, data, sender)

        async def send() -> None:
            while True:
                await loop.sock_sendto(near, bytes(size), (HOST, PORT))
                await asyncio.sleep(0.1)

        tasks = [asyncio.create_task(echo()), asyncio.create_task(send())]
        try:
            async with asyncio.timeout(within_s):
                return len(await loop.sock_recv(near, 65_536)) == size
        except TimeoutError:
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def address_of(lab: Lab, name: str) -> str:
    words = ["ip", "-n", lab.namespace(name), "-json", "link", "show", "eth0"]
    shown = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return str(shown[0]["address"])


async def test_a_chain_of_two_services_carries_packets_of_its_mtu_both_ways(lab: Lab) -> None:
    ports = {}
    for name, address in (("net", NET), ("host", HOST)):
        ports[name] = lab.wire(name)
        _ip("-n", lab.namespace(name), "link", "set", "eth0", "mtu", str(JUMBO))
        _ip("-n", lab.namespace(name), "address", "add", f"{address}/24", "dev", "eth0")
    firewall, router = ([service(lab, name, number) for number in (1, 2)] for name in ("fire", "rout"))

    def document(mtu: int) -> Document:
        outside = Interface("dpf/p0", "physical", ports["net"], mtu)
        inside = Interface("dpf/pf0", "physical", ports["host"], mtu)
        pairs = ((outside, firewall[0]), (firewall[1], router[0]), (router[1], inside))
        switches = tuple(chain(f"chain-{number}", *pair, mtu=mtu) for number, pair in enumerate(pairs))
        return Document(interfaces=(outside, inside, *firewall, *router), switches=switches)

    async with bridge_network(lab.switch, lab.bridge) as device:
        small = document(1500)
        names = tuple(each.name for each in (*firewall, *router))
        assert (await programmed(device, small)).unresolved == names
        assert not await answers(lab, 64, SILENT_S)
        start_pod(lab, "fire")
        start_pod(lab, "rout")
        await read_until(device, lambda found: (found.digest, found.unresolved) == (digest_of(small), ()))
        assert await answers(lab, 64)
        assert not await answers(lab, JUMBO - 100, SILENT_S)
        assert not (await programmed(device, document(JUMBO))).unresolved
        assert await answers(lab, JUMBO - 100)
        learned = [line for line in lab.switch.flows(lab.bridge) if "cookie=0xd9a7" in line]
        for name in ("net", "host"):
            count = sum(f"dl_dst={address_of(lab, name)} " in line for line in learned)
            assert count == 3, f"{name} is learned in each of the three switches"
