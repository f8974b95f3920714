"""Networks under faults: daemons of the switch and connections are killed in random order while documents change and
ports of services come and go. At the end every bridge has exactly its document.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress

import pytest

from deploy.host.openvswitch import Switch
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import MemoryNetworkStore
from drivers.backends.device import DeviceFailed
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.openflow.chain_flows import NETWORK_COOKIE
from drivers.wire.protocol import NetworkStatus
from drivers.wire.relay_messages import Network
from projections.resources.network_documents.document import Document, Interface, encoded
from tests.contract.network_device import chain, physical
from tests.support.openvswitch import bridge_network, switch_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BRIDGES = ("one", "two")
ROUNDS = 40
REST_S = 60.0


def some_document(rng: random.Random, bridge: str) -> Document:
    """Ports, ports of services that may never come, VLANs, and chains of some of them."""
    ports = [physical(f"{bridge}-p{number}", rng.choice((1500, 9000))) for number in range(5) if rng.random() < 0.8]
    services = [
        Interface(f"dpf/s{number}", "service", settings={"serviceID": f"s{number}", "interfaceName": f"if{number}"})
        for number in range(3)
    ]
    vlans = [
        Interface(f"dpf/v{number}", "vlan", settings={"vlanID": 100 + number, "parentInterfaceRef": parent.port})
        for number, parent in enumerate(ports[:2])
    ]
    interfaces = (*ports, *services, *vlans)
    chains = (
        chain(f"chain-{number}", *rng.sample(interfaces, rng.randrange(1, len(interfaces) + 1)))
        for number in range(rng.randrange(4))
    )
    return Document(interfaces=interfaces, switches=tuple(chains))


def strike(switch: Switch, rng: random.Random, present: set[tuple[str, int]]) -> str:
    """Kill a daemon and start it again, or have a port of a service come or go. Returns what it was."""
    name = rng.choice(("ovs-vswitchd", "ovsdb-server", "port", "port", "flows"))
    bridge, number = rng.choice(BRIDGES), rng.randrange(3)
    if name == "flows":
        switch.ofctl("del-flows", bridge)
    elif name != "port":
        switch.kill(name)
        switch.start_daemon(name)
    elif (bridge, number) in present:
        switch.vsctl("del-port", bridge, f"{bridge}-s{number}")
        present.remove((bridge, number))
    else:
        port = f"{bridge}-s{number}"
        ids = f"external_ids:dpf-id=dpf/s{number}-x/if{number}"
        switch.vsctl("add-port", bridge, port, "--", "set", "interface", port, ids)
        present.add((bridge, number))
    return name


async def test_every_bridge_has_exactly_its_document_after_random_faults() -> None:
    rng, strikes = random.Random(4), random.Random(5)
    struck: set[str] = set()
    present: set[tuple[str, int]] = set()
    with switch_folder() as switch:
        for bridge in BRIDGES:
            switch.add_bridge(bridge)
        async with AsyncExitStack() as stack:
            devices = {bridge: await stack.enter_async_context(bridge_network(switch, bridge)) for bridge in BRIDGES}
            agents = {bridge: AgentNetwork(device, MemoryNetworkStore()) for bridge, device in devices.items()}
            for version in range(1, ROUNDS):
                striking = asyncio.create_task(asyncio.to_thread(strike, switch, strikes, present))
                for bridge, agent in agents.items():
                    found = encoded(some_document(rng, bridge))
                    taken = await agent.take(Network(0, 1, version, bytes.fromhex(found.digest), found.text.encode()))
                    if not isinstance(taken, NetworkStatus):
                        assert "not connected" in taken.reason or "closed" in taken.reason, taken.reason
                struck.add(await striking)
            assert len(struck) == 4
            for bridge, agent in agents.items():
                absent = {f"dpf/s{number}" for number in range(3) if (bridge, number) not in present}
                await settled(devices[bridge], agent, absent)
                await at_its_end(switch, bridge, agent)


async def settled(device: OpenVSwitchNetwork, agent: AgentNetwork, absent: set[str]) -> None:
    """Wait until the device has the agent's document, but the ports of absent services."""
    async with asyncio.timeout(REST_S):
        while True:
            await agent.read_back()  # a heartbeat, by which the agent restores its document
            with suppress(DeviceFailed):
                found = await device.read_back()
                if (found.digest, set(found.unresolved)) == (agent.held.digest, absent):
                    return
            await asyncio.sleep(0.1)


async def at_its_end(switch: Switch, bridge: str, agent: AgentNetwork) -> None:
    """An empty document leaves nothing of the plane, and everything of others."""
    found = encoded(Document())
    taken = await agent.take(Network(0, 1, ROUNDS, bytes.fromhex(found.digest), found.text.encode()))
    assert isinstance(taken, NetworkStatus), taken
    assert not [line for line in switch.flows(bridge) if f"cookie={NETWORK_COOKIE >> 48:#x}" in line]
    left = switch.vsctl("list-ports", bridge).split()
    assert not [name for name in left if name.startswith(f"{bridge}-p")] and f"{bridge}-1" in left
