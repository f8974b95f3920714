"""Bridges under faults: daemons of the switch, agents, relay, API and brokers are killed in random order while nodes
join and leave. At the end every bridge has exactly the rules of the log.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.host.openvswitch import Switch
from drivers.openflow.rule_flows import COOKIE, COOKIE_MASK, FlowComparison, priorities_found
from drivers.openflow.session import SwitchSession
from projections.rules.device_table import DeviceTable
from projections.rules.rule import Rule
from tests.contract.device import table
from tests.support.openvswitch import LAYOUT, switch_folder
from tests.support.planes import Process, run, serving, started
from tests.support.struck_brokers import StruckBrokers

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

ZONE = "a"
BRIDGES = {"src/d1": "one", "src/d2": "two", "src/d3": "three"}
STRUCK = ("ovs-vswitchd", "ovsdb-server", "agent", "relay", "api", "broker")
ROUNDS = 5
REST_S = 60.0


class Parts:
    """What may be killed, each with what starts it again."""

    def __init__(self, stack: AsyncExitStack, folder: Path, switch: Switch, brokers: StruckBrokers) -> None:
        self.switch = switch
        self.addresses: dict[str, str] = {}
        self._stack = stack
        self._folder = folder
        self._brokers = brokers
        self._roles: dict[str, Process] = {}
        self._agents: dict[str, Process] = {}

    @property
    def server(self) -> str:
        return self.addresses["api"]

    async def start(self) -> None:
        for role in ("api", "relay"):
            await self.start_role(role)
        for dpu in BRIDGES:
            assert (await run("dpus", "register", dpu, "--zone", ZONE, server=self.server)).status == 0
            await self.start_agent(dpu)

    async def start_role(self, role: str) -> None:
        """Start a process of the plane, where it was before."""
        flags = ["--kafka", self._brokers.bootstrap, "--topic-prefix", "bridges", "--partitions", "2"]
        option, served = {"api": ("--listen", "api"), "relay": ("--agents", "agents")}[role]
        again = [option, self.addresses[role]] if role in self.addresses else []
        self._roles[role] = await self._stack.enter_async_context(serving(*flags, "--role", role, *again))
        self.addresses[role] = self._roles[role].address(served)

    async def start_agent(self, dpu: str) -> None:
        flags = ["--relay", self.addresses["relay"], "--zone", ZONE, "--dpu", dpu]
        flags += ["--state", str(self._folder / "state"), "--backend", "openvswitch", "--bridge", BRIDGES[dpu]]
        flags += ["--openvswitch-run", str(self.switch.folder)]
        self._agents[dpu] = await self._stack.enter_async_context(
            started("agent", *flags, stderr=self._folder / "agents.txt")
        )

    async def strike(self, name: str, rng: random.Random) -> None:
        """Kill a part, and start it again after a moment."""
        pause_s = rng.uniform(0.0, 1.5)
        if name in ("ovs-vswitchd", "ovsdb-server"):
            self.switch.kill(name)
            await asyncio.sleep(pause_s)
            self.switch.start_daemon(name)
        elif name == "broker":
            self._brokers.kill(rng.choice(self._brokers.ids))
            await asyncio.sleep(pause_s)
            await self._brokers.heal()
        elif name == "agent":
            dpu = rng.choice(list(BRIDGES))
            await _killed(self._agents[dpu])
            await asyncio.sleep(pause_s)
            await self.start_agent(dpu)
        else:
            await _killed(self._roles[name])
            await asyncio.sleep(pause_s)
            await self.start_role(name)


async def _killed(process: Process) -> None:
    process.kill()
    await process.ended()


def table_of(shown: dict[str, Any]) -> DeviceTable:
    """The table of a zone, as `dpuplane rules show` prints it."""
    rules: defaultdict[Rule, set[bytes]] = defaultdict(set)
    for each in shown["rules"]:
        ports = tuple(port for pair in each["ports"] for port in pair)
        network = ipaddress.ip_network(each["prefix"])
        packed = network.network_address.packed + bytes((network.prefixlen,))
        rules[Rule(each["priority"], each["action"], each["protocol"], ports)].add(packed)
    return table(shown["version"], {rule: frozenset(found) for rule, found in rules.items()})


async def differences(switch: Switch, bridge: str, expected: DeviceTable) -> int:
    """How many flows of a bridge are not those of the table."""
    session = await SwitchSession.open(switch.socket(bridge))
    serving_task = asyncio.create_task(session.serve())
    try:
        flows = await session.flows(COOKIE, COOKIE_MASK)
    finally:
        serving_task.cancel()
        await asyncio.wait({serving_task})
    priorities = priorities_found({flow.cookie: flow.priority for flow in flows}, expected.rules)
    found = FlowComparison(expected, priorities.of_rules, LAYOUT)
    for flow in flows:
        found.add(flow)
    return found.differences


async def change(server: str, rng: random.Random, members: set[int]) -> None:
    """Let a node join or leave; nothing is known of a command that fails while the API or a broker is killed."""
    node = rng.randrange(40)
    if node in members:
        words = ["nodes", "leave", f"n{node}", "--zone", ZONE]
    else:
        words = ["nodes", "join", f"n{node}", "--zone", ZONE, "--address", f"10.0.0.{node + 1}"]
    if (await run(*words, server=server)).status == 0:
        members ^= {node}


async def test_every_bridge_equals_the_log_after_random_kills(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    rng = random.Random(3)
    struck = [*STRUCK * ROUNDS]
    rng.shuffle(struck)
    members: set[int] = set()
    with switch_folder() as switch:
        for bridge in BRIDGES.values():
            switch.add_bridge(bridge)
        async with AsyncExitStack() as stack:
            parts = Parts(stack, tmp_path, switch, kafka_brokers)
            await parts.start()
            for name in struck:
                striking = asyncio.create_task(parts.strike(name, rng))
                for _ in range(3):
                    await change(parts.server, rng, members)
                await striking
            shown = await run("rules", "show", ZONE, "--output", "json", server=parts.server)
            expected = table_of(shown.json())
            assert expected.rules
            async with asyncio.timeout(REST_S):
                for bridge in BRIDGES.values():
                    while await differences(switch, bridge, expected):
                        await asyncio.sleep(0.2)
            verified = await run("verify", server=parts.server)
            assert verified.status == 0, verified.stdout
