"""Real agents in a run, one per zone besides the simulator's devices. Each has a device of its own and a persisted
table.

An agent crashes and restarts: its device keeps its table, and the agent its last good table. Unlike a simulated device
that reboots, an agent therefore never reports an older version. (Its device may go back: a device that failed a step
but holds the newer table is restored to the last good one.)
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
    """Records every persisted table: the agent reports that version, or a newer one, for the rest of the run."""

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
    """A device whose faults can be reduced; it records the steps that it is told to follow."""

    def __init__(self, zone: str, name: str, history: History, faults: DeviceFaults, rng: random.Random) -> None:
        super().__init__(faults, rng=rng)
        self._about = zone, name
        self._history = history
        self._said = EMPTY_TABLE

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        before = tuple((rule, *pack(prefixes)) for rule, prefixes in self._said.rules.items())
        self._history.add(FrameStarted(current_loop().time(), *self._about, before, tuple(steps)))
        return super().apply(steps, table)

    def _take(self, table: DeviceTable) -> bool:
        taken = super()._take(table)
        self._said = table
        return taken

    def heal(self, faults: DeviceFaults) -> None:
        """Limit the device's faults to these from now on."""
        self._faults = faults


class AgentHost:
    """The machine of one agent."""

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
        self._lives = 0

    def start(self) -> None:
        """Start a new life of the agent."""
        self._lives += 1
        who = AgentIdentity(self.zone, self.name, f"boot-{self._lives}")
        self.agent = Agent(who, self._relays, dial=self._dial, device=self.device, store=self._store, rng=self._rng)
        with owned_by(f"{self.name}#{self._lives}"):
            self._running = current_loop().create_task(self.agent.run())

    async def crash(self) -> None:
        """End this life."""
        if self._running.done() and not self._running.cancelled():
            self.faults.append(f"{self.name} ended: {self._running.exception()!r}")
        self._running.cancel()
        await asyncio.wait({self._running})
        if left := current_loop().tasks_of(f"{self.name}#{self._lives}"):
            self.faults.append(f"{self.name} left tasks behind: {left[:5]}")
