"""The agents of the device demo, each with the bridge of its DPU."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from deploy.composition.device_backends import Bridge
from deploy.demo.devices.manifests import DemoDpu
from deploy.demo.devices.switches import DpuSwitches
from deploy.demo.load import DemoFailed
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import MemoryNetworkStore
from drivers.agents.store import MemoryTableStore
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.openflow import messages as openflow
from drivers.openflow.rule_flows import FlowLayout
from drivers.wire.links import Dial

LAYOUT = FlowLayout(20, openflow.goto_table(30), 1_000, 30, b"")
"""The tables of an agent. A packet without a chain is dropped."""
POLLS_MAX, POLL_S = 1_200, 0.05


class DeviceAgents:
    """Runs agents in a task group, connected to one relay."""

    def __init__(
        self, switches: DpuSwitches, relay: str, *, dial: Dial, rng: random.Random, tasks: asyncio.TaskGroup
    ) -> None:
        self._switches = switches
        self._relay = relay
        self._dial = dial
        self._rng = rng
        self._tasks = tasks
        self._running: dict[DemoDpu, asyncio.Task[None]] = {}

    def start(self, dpu: DemoDpu, zone: str) -> None:
        """Start the agent of a DPU in a zone. It begins without a table, as after an installation."""
        self._running[dpu] = self._tasks.create_task(self._run(dpu, zone))

    async def stop(self, dpu: DemoDpu) -> None:
        task = self._running.pop(dpu)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def stop_all(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def _run(self, dpu: DemoDpu, zone: str) -> None:
        bridge = Bridge(self._switches.bridge(dpu), self._switches.switch.folder, LAYOUT)
        device = OpenVSwitch(bridge.socket, LAYOUT, rng=self._rng)
        network = OpenVSwitchNetwork(bridge.network, rng=self._rng)
        agent = Agent(
            AgentIdentity(zone, dpu.name, f"{self._rng.getrandbits(64):016x}"),
            [self._relay],
            dial=self._dial,
            device=device,
            store=MemoryTableStore(),
            rng=self._rng,
            network=AgentNetwork(network, MemoryNetworkStore()),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(device.run())
            tasks.create_task(network.run())
            await _connected(device, network)
            tasks.create_task(agent.run())


async def _connected(device: OpenVSwitch, network: OpenVSwitchNetwork) -> None:
    """Wait until both have a session with the bridge. An agent would report the lack of one as a failure."""
    for _ in range(POLLS_MAX):
        if not device.fault and not network.fault:
            return
        await asyncio.sleep(POLL_S)
    raise DemoFailed(f"bridge not connected: {device.fault or network.fault}")
