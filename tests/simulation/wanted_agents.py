"""The agents of wanted DPUs in a run. An agent runs while an image is installed on its DPU; an installation erases it.

A reboot of the host restarts an agent, and its device loses the network document, which the agent must restore from its
storage. In the fault phase devices also fail, lose documents at any time, and find ports of services late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from drivers.backends.simulated_bmc import SCHEME, SimulatedBmcs
from drivers.backends.simulated_network import NO_NETWORK_FAULTS, NetworkFaults, SimulatedNetwork
from drivers.wire.links import Dial
from eventstore.log import ZONES
from projections.fold_states import FoldStates
from tests.simulation.agents import AgentHost, WatchedDevice
from tests.simulation.history import FinalNetwork, History
from tests.simulation.process import Process
from tests.simulation.script import Action, Director
from tests.support.virtual_loop import current_loop

NAME = "wanted agents"
LOOK_S = 0.5
NETWORK_FAULTS = NetworkFaults(failures=0.2, ports_s=3.0)
FAULT_WEIGHTS = {"crash": 1, "lose": 2}
"""The relative frequency of each kind of fault: the agent ends, or its device loses the network document."""


class WantedAgents:
    """Runs the agents of the DPUs that zones have for objects. The folds of `processes` tell the zones of DPUs."""

    def __init__(
        self,
        processes: Sequence[Process],
        bmcs: SimulatedBmcs,
        relays: Sequence[str],
        *,
        dial: Dial,
        faults: DeviceFaults,
        history: History,
        rng: Callable[[str], random.Random],
    ) -> None:
        self.hosts: dict[str, AgentHost] = {}
        """The host of each agent that runs, by the name of its DPU."""
        self._processes = processes
        self._bmcs = bmcs
        self._relays = relays
        self._dial = dial
        self._faults = faults
        self._network_faults = NETWORK_FAULTS
        self._history = history
        self._rng = rng
        self._installed: dict[str, tuple[str, int]] = {}
        """The zone of each agent, and the number of installations that its DPU has had."""
        self._boots: dict[str, int] = {}
        """The number of boots of each DPU at the last start of its agent."""
        self._count = 0
        self._ended_faults: list[str] = []

    async def run(self) -> None:
        """Start and stop agents until cancelled."""
        while True:
            wanted = self._wanted()
            if wanted is not None:
                await self._follow(wanted)
            await asyncio.sleep(LOOK_S)

    async def disturb(self, director: Director, seed: int, pause_s: float) -> None:
        """Inject faults into agents and their devices until cancelled."""

        def draw(rng: random.Random) -> tuple[float, str]:
            return rng.expovariate(1 / pause_s), rng.choices([*FAULT_WEIGHTS], [*FAULT_WEIGHTS.values()])[0]

        async for action in director.actions(NAME, draw):
            await self._disturb_one(action, action.rng(seed))

    async def _disturb_one(self, action: Action, rng: random.Random) -> None:
        if not self.hosts:
            return
        host = self.hosts[rng.choice([*self.hosts])]
        action.description = host.name
        if action.what == "crash":
            self._history.note(current_loop().time(), "agent crash", host.name)
            await self._restart(host)
        elif host.network is not None and host.network.document:
            self._history.note(current_loop().time(), "lost network document", host.name)
            host.network.lose()

    def heal(self) -> None:
        """End all faults."""
        self._faults, self._network_faults = NO_DEVICE_FAULTS, NO_NETWORK_FAULTS
        for host in self.hosts.values():
            host.device.heal()
            if host.network is not None:
                host.network.faults = NO_NETWORK_FAULTS

    async def end(self) -> None:
        """Stop every agent."""
        for name in [*self.hosts]:
            await self._stop(name)

    def faults(self) -> Iterator[str]:
        """The failures of agents that no injected fault explains."""
        yield from self._ended_faults
        for host in self.hosts.values():
            yield from host.faults

    def final_networks(self) -> Iterator[FinalNetwork]:
        """What agents and their devices have of their network documents."""
        for host in self.hosts.values():
            if (found := host.final_network) is not None:
                yield found

    def _wanted(self) -> dict[str, tuple[str, int]] | None:
        """The zone of each DPU whose agent must run, and the number of its installations; None if no process knows."""
        up = next((each.instance for each in self._processes if each.instance and each.instance.is_up), None)
        if up is None:
            return None
        states, found = FoldStates(up.replica), {}
        for partition in up.replica.partitions(ZONES):
            zones = states.zones_at(partition)
            for name in sorted(zones.wanted.rows):
                row = zones.dpus.rows.get(name)
                if row is None or not row.installed or not row.bmc_address.startswith(SCHEME):
                    continue
                device = self._bmcs.device(row.bmc_address.removeprefix(SCHEME))
                if device.image:
                    found[name] = row.zone, sum(task.action == "install" for task in device.begun)
        return found

    async def _follow(self, wanted: dict[str, tuple[str, int]]) -> None:
        for name in [name for name in self.hosts if wanted.get(name) != self._installed[name]]:
            await self._stop(name)
        for name, (zone, installs) in wanted.items():
            boots = self._bmcs.device(name).boots
            if name not in self.hosts:
                self._installed[name], self._boots[name] = (zone, installs), boots
                self._start(zone, name)
            elif self._boots[name] != boots:
                self._boots[name] = boots
                host = self.hosts[name]
                if host.network is not None:
                    host.network.lose()
                await self._restart(host)

    def _start(self, zone: str, name: str) -> None:
        self._count += 1
        rng = self._rng(f"wanted agent {self._count}")
        host = self.hosts[name] = AgentHost(
            zone,
            name,
            self._relays,
            dial=self._dial,
            device=WatchedDevice(zone, name, self._history, self._faults, rng),
            history=self._history,
            rng=rng,
            boot=self._count,
            network=SimulatedNetwork(self._network_faults, rng=rng),
        )
        host.start()

    async def _restart(self, host: AgentHost) -> None:
        try:
            await host.crash()
        finally:
            if self.hosts.get(host.name) is host:
                host.start()

    async def _stop(self, name: str) -> None:
        host = self.hosts.pop(name)
        del self._installed[name]
        await host.crash()
        self._ended_faults += host.faults
