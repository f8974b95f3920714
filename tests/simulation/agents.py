"""Real agents in a run, one per zone, besides the devices of the simulator. Each has its own device and a persisted
table.

When an agent crashes and restarts, its device keeps its table and the agent keeps its last good table. An agent
therefore never reports an older version, unlike a simulated device that reboots. Its device may go back: a device that
failed a step but holds the newer table is restored to the last good one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import DeviceFaults, SimulatedDevice
from drivers.wire.links import Dial
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, pack
from projections.rules.rule import SetStep
from tests.simulation.history import FrameStarted, History, TableInstalled
from tests.support.virtual_loop import current_loop, owned_by


class WatchedStore(MemoryTableStore):
    """Records every persisted table. The agent reports that version or a newer one for the rest of the run."""

    def __init__(self, zone: str, name: str, history: History) -> None:
        super().__init__()
        self._zone = zone
        self._name = name
        self._history = history

    def save(self, table: DeviceTable) -> None:
        super().save(table)
        at_s = current_loop().time()
        self._history.add(TableInstalled(at_s, self._zone, self._name, 0, table.epoch, table.version, table.digest))
        self._history.note(at_s, "agent", self._name, table.version, table.digest.hex())


class WatchedDevice(SimulatedDevice):
    """A device that records the steps of each frame, and whose faults can be reduced."""

    def __init__(self, zone: str, name: str, history: History, faults: DeviceFaults, rng: random.Random) -> None:
        super().__init__(faults, rng=rng)
        self._zone_and_name = zone, name
        self._history = history
        self._frame_base = EMPTY_TABLE

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        before = tuple((rule, *pack(prefixes)) for rule, prefixes in self._frame_base.rules.items())
        self._history.add(FrameStarted(current_loop().time(), *self._zone_and_name, before, tuple(steps)))
        return super().apply(steps, table)

    def _take(self, table: DeviceTable) -> bool:
        taken = super()._take(table)
        self._frame_base = table
        return taken

    def heal(self, faults: DeviceFaults) -> None:
        """Replace the faults of the device by these."""
        self._faults = faults


class AgentHost:
    """The host of one agent."""

    def __init__(
        self,
        zone: str,
        relays: Sequence[str],
        *,
        dial: Dial,
        faults: DeviceFaults,
        history: History,
        rng: random.Random,
    ) -> None:
        self.zone = zone
        self.name = f"{zone}-agent"
        self.faults: list[str] = []
        self.device = WatchedDevice(zone, self.name, history, faults, rng)
        self.agent: Agent
        self._relays = relays
        self._dial = dial
        self._rng = rng
        self._store = WatchedStore(zone, self.name, history)
        self._starts = 0

    def start(self) -> None:
        """Start a new instance of the agent."""
        self._starts += 1
        identity = AgentIdentity(self.zone, self.name, f"boot-{self._starts}")
        self.agent = Agent(
            identity, self._relays, dial=self._dial, device=self.device, store=self._store, rng=self._rng
        )
        with owned_by(f"{self.name}#{self._starts}"):
            self._running = current_loop().create_task(self.agent.run())

    async def crash(self) -> None:
        """Kill this instance of the agent."""
        if self._running.done() and not self._running.cancelled():
            self.faults.append(f"{self.name} ended: {self._running.exception()!r}")
        self._running.cancel()
        await asyncio.wait({self._running})
        if left := current_loop().tasks_of(f"{self.name}#{self._starts}"):
            self.faults.append(f"{self.name} left tasks behind: {left[:5]}")
