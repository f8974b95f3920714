"""Real agents in a run, one per zone beside the simulator's devices: each with a device of its own and a kept table.

An agent dies and comes back; its device keeps what it held, and the agent its last good table. So, unlike a simulated
device that reboots, what it says that it has never goes back at all. (Its device may: one that said "failed" and holds
the newer table all the same is put back to the last good one.)
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
from tests.simulation.loop import current_loop, owned_by


class WatchedStore(MemoryTableStore):
    """Writes down every table that is kept: what the agent says that it has, from then on and for ever."""

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
    """A device that can be made better, and writes down the steps that it is told to follow."""

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
        """Be as good as this from now on."""
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
        """A new life of the agent."""
        self._lives += 1
        who = AgentIdentity(self.zone, self.name, f"boot-{self._lives}")
        self.agent = Agent(who, self._relays, dial=self._dial, device=self.device, store=self._store, rng=self._rng)
        with owned_by(f"{self.name}#{self._lives}"):
            self._running = current_loop().create_task(self.agent.run())

    async def crash(self) -> None:
        """The end of this life."""
        if self._running.done() and not self._running.cancelled():
            self.faults.append(f"{self.name} ended: {self._running.exception()!r}")
        self._running.cancel()
        await asyncio.wait({self._running})
        if left := current_loop().tasks_of(f"{self.name}#{self._lives}"):
            self.faults.append(f"{self.name} left tasks behind: {left[:5]}")
