"""The agents of simulated DPUs that objects want, each as a real agent over a simulated device.

An agent runs from the first start of its DPU's image: before the DPU is ready, for a DPU may be ready only once its
agent has applied its network document. A new installation erases the DPU: its agent stops, and the next one begins
without a table and without a network document.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.network import AgentNetwork
from drivers.agents.network_store import MemoryNetworkStore
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import SimulatedDevice
from drivers.backends.simulated_network import NO_NETWORK_FAULTS, NetworkFaults, SimulatedNetwork
from drivers.wire.links import Dial
from eventstore.log import ZONES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.zones.dpus.phases import CLUSTER_CONFIG, SERVICE_READINESS
from projections.zones.rows import Dpu

SCHEME = "simulated:"
"""The addresses of BMCs whose DPUs are simulated."""
_STARTED = frozenset((CLUSTER_CONFIG, SERVICE_READINESS))
"""The steps of a DPU that runs its new image."""


class SimulatedAgents:
    """Runs the agents of the DPUs that the zones of a replica have, until `run` is cancelled."""

    def __init__(
        self,
        replica: Replica,
        relays: Sequence[str],
        *,
        dial: Dial,
        rng: random.Random,
        faults: NetworkFaults = NO_NETWORK_FAULTS,
    ) -> None:
        self.networks: dict[str, SimulatedNetwork] = {}
        """The network of each DPU whose agent runs, by name."""
        self._replica = replica
        self._relays = relays
        self._dial = dial
        self._rng = rng
        self._faults = faults
        self._states = FoldStates(replica)
        self._revisions: dict[Partition, int] = {}
        self._running: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """The zone and the task of each agent."""

    async def run(self) -> None:
        await self._replica.ready()
        partitions = self._replica.partitions(ZONES)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._replica.fold_waits.wait_for(self._is_changed, *partitions)
                for partition in partitions:
                    self._follow(partition, tasks)

    def _is_changed(self) -> bool:
        return any(
            self._revisions.get(partition) != self._states.zones_at(partition).dpu_journal.revision
            for partition in self._replica.partitions(ZONES)
        )

    def _follow(self, partition: Partition, tasks: asyncio.TaskGroup) -> None:
        """Start and stop the agents of the DPUs that have changed."""
        state = self._states.zones_at(partition)
        names = state.dpu_journal.since(self._revisions.get(partition, -1))
        self._revisions[partition] = state.dpu_journal.revision
        for name in (*state.wanted.rows, *self._running) if names is None else names:
            row = state.dpus.rows.get(name)
            is_ours = row is not None and name in state.wanted.rows and row.bmc_address.startswith(SCHEME)
            zone = row.zone if row is not None and is_ours and _runs_image(row) else ""
            known, task = self._running.get(name, ("", None))
            if zone == known or (not zone and self._replica.partition_for(ZONES, known) != partition):
                continue
            if task is not None:
                task.cancel()
                del self._running[name], self.networks[name]
            if zone:
                self._running[name] = zone, tasks.create_task(self._agent(zone, name).run())

    def _agent(self, zone: str, name: str) -> Agent:
        network = self.networks[name] = SimulatedNetwork(self._faults, rng=self._rng)
        return Agent(
            AgentIdentity(zone, name, f"{self._rng.getrandbits(64):016x}"),
            self._relays,
            dial=self._dial,
            device=SimulatedDevice(rng=self._rng),
            store=MemoryTableStore(),
            rng=self._rng,
            network=AgentNetwork(network, MemoryNetworkStore()),
        )


def _runs_image(row: Dpu) -> bool:
    return bool(row.installed) or not _STARTED.isdisjoint((row.phase, row.resume))
