"""Real agents in a run, one per zone and those of wanted DPUs, besides the devices of the simulator. Each has its own
device and a persisted table. Agents of wanted DPUs also take network documents.

When an agent crashes and restarts, its device keeps its table and the agent keeps its last good table. An agent
therefore never reports an older version, unlike a simulated device that reboots. Its device may go back: a device that
failed a step but holds the newer table is restored to the last good one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import HeldNetwork, MemoryNetworkStore
from drivers.agents.store import MemoryTableStore
from drivers.backends.device import Device
from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults, SimulatedDevice
from drivers.backends.simulated_network import SimulatedNetwork
from drivers.wire.links import Dial
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, pack
from projections.rules.rule import Rule, SetStep
from tests.simulation.history import FinalNetwork, FrameStarted, History, NetworkInstalled, TableInstalled
from tests.support.virtual_loop import current_loop, owned_by


class WatchedStore(MemoryTableStore):
    """Records every persisted table. The agent reports that version or a newer one until the next installation."""

    def __init__(self, zone: str, name: str, boot: int, history: History) -> None:
        super().__init__()
        self._zone = zone
        self._name = name
        self._boot = boot
        self._history = history

    def save(self, table: DeviceTable) -> None:
        super().save(table)
        at_s = current_loop().time()
        name, boot = self._name, self._boot
        self._history.add(TableInstalled(at_s, self._zone, name, boot, table.epoch, table.version, table.digest))
        self._history.note(at_s, "agent", name, table.version, table.digest.hex())


class WatchedNetworkStore(MemoryNetworkStore):
    """Records every persisted network document."""

    def __init__(self, zone: str, name: str, boot: int, history: History) -> None:
        super().__init__()
        self._whose = zone, name, boot
        self._history = history

    def save(self, network: HeldNetwork) -> None:
        super().save(network)
        at_s = current_loop().time()
        self._history.add(NetworkInstalled(at_s, *self._whose, network.epoch, network.version, network.digest))
        self._history.note(at_s, "network document", self._whose[1], network.version, network.digest.hex())


class Held(NamedTuple):
    """What a device holds: the digest of its table, and the rules with packed prefixes if they are known."""

    digest: bytes
    rules: tuple[tuple[Rule, bytes, bytes], ...] | None


def rules_of(table: DeviceTable) -> tuple[tuple[Rule, bytes, bytes], ...]:
    """The rules of a table as a history has them."""
    return tuple((rule, *pack(prefixes)) for rule, prefixes in table.rules.items())


class HostDevice(Protocol):
    """The device of a host. It outlives its agent."""

    def connect(self) -> Device:
        """The device as a new instance of the agent has it."""
        ...

    def held(self, table: DeviceTable) -> Held:
        """What the device holds. `table` is the table of the agent."""
        ...

    def heal(self) -> None:
        """End all faults."""
        ...


class WatchedDevice(SimulatedDevice):
    """A device that records the steps of each frame, and whose faults can be reduced."""

    def __init__(self, zone: str, name: str, history: History, faults: DeviceFaults, rng: random.Random) -> None:
        super().__init__(faults, rng=rng)
        self._zone_and_name = zone, name
        self._history = history
        self._frame_base = EMPTY_TABLE

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        base = rules_of(self._frame_base)
        self._history.add(FrameStarted(current_loop().time(), *self._zone_and_name, base, tuple(steps)))
        return super().apply(steps, table)

    def _take(self, table: DeviceTable) -> bool:
        taken = super()._take(table)
        self._frame_base = table
        return taken

    def connect(self) -> Device:
        return self

    def held(self, table: DeviceTable) -> Held:
        return Held(self.holds.digest, rules_of(self.holds))

    def heal(self) -> None:
        self._faults = NO_DEVICE_FAULTS


class AgentHost:
    """The host of one agent, from an installation to the next one. `boot` is the number of the installation, and
    `network` the network of the device if the agent takes network documents.
    """

    def __init__(
        self,
        zone: str,
        name: str,
        relays: Sequence[str],
        *,
        dial: Dial,
        device: HostDevice,
        history: History,
        rng: random.Random,
        boot: int = 0,
        network: SimulatedNetwork | None = None,
    ) -> None:
        self.zone = zone
        self.name = name
        self.faults: list[str] = []
        self.device = device
        self.network = network
        self.agent: Agent
        self._relays = relays
        self._dial = dial
        self._rng = rng
        self._store = WatchedStore(zone, self.name, boot, history)
        self._network_store = WatchedNetworkStore(zone, self.name, boot, history)
        self._boot = boot
        self._starts = 0

    def start(self) -> None:
        """Start a new instance of the agent."""
        self._starts += 1
        identity = AgentIdentity(self.zone, self.name, f"boot-{self._boot}-{self._starts}")
        device = self.device.connect()
        self.agent = Agent(
            identity,
            self._relays,
            dial=self._dial,
            device=device,
            store=self._store,
            rng=self._rng,
            network=AgentNetwork(self.network, self._network_store) if self.network is not None else None,
        )
        with owned_by(self._owner):
            self._running = current_loop().create_task(_run(self.agent, device))

    @property
    def final_network(self) -> FinalNetwork | None:
        """What the agent and its device have of the network document; None if the agent takes none."""
        if self.network is None:
            return None
        held = self._network_store.load()
        return FinalNetwork(self.zone, self.name, held.version, self.network.digest)

    @property
    def _owner(self) -> str:
        return f"{self.name}#{self._boot}.{self._starts}"

    async def crash(self) -> None:
        """Kill this instance of the agent."""
        if self._running.done() and not self._running.cancelled():
            self.faults.append(f"{self.name} ended: {self._running.exception()!r}")
        self._running.cancel()
        await asyncio.wait({self._running})
        if left := current_loop().tasks_of(self._owner):
            self.faults.append(f"{self.name} left tasks behind: {left[:5]}")


async def _run(agent: Agent, device: Device) -> None:
    """Run an agent and what its device needs."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(device.run())
        tasks.create_task(agent.run())
