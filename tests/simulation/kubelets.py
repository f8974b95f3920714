"""The kubelets of wanted DPUs in a run, and the controllers of Nodes in the control planes of their DPU clusters.

A kubelet runs while an image is installed on its DPU, from some time after each boot. At its start it registers the
Node of its DPU in the DPU cluster that the DPU is allocated to. The Node is not ready at first, may fail once, and has
the id of the boot. In the fault phase heartbeats stop at times, and the control plane states that it does not know the
node any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drivers.backends.simulated_bmc import SCHEME, SimulatedBmcs
from eventstore.log import ZONES
from projections.fold_states import FoldStates
from projections.resources.rollouts.released import cluster_of
from projections.zones.dpus.phases import DELETING
from schemas.kubernetes.api import CONFLICT, ApiError
from tests.simulation.cluster_servers import NODES, ClusterServers
from tests.simulation.history import History
from tests.simulation.peers import latest, resources_of
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.support.kubernetes.requests import create
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.peers import next_node, silent_node
from tests.support.virtual_loop import current_loop

NAME = "kubelets"
LOOK_S = 0.5
BOOT_S = 1.0
"""The longest time from a boot of a DPU to the start of its kubelet."""
GRACE_S = 2.0
"""The time without a heartbeat after which a node counts as unknown."""
SILENT_S = (3.0, 8.0)
FAILURE = 0.3


@dataclass(slots=True)
class Kubelet:
    """One kubelet, from a boot of its DPU. `address` is that of the API server at which it has registered its Node."""

    boot: int
    starts_s: float
    address: str = ""


class Kubelets:
    """Runs the kubelets of the DPUs of objects. The folds of `processes` tell their DPU clusters."""

    def __init__(
        self,
        processes: Sequence[Process],
        bmcs: SimulatedBmcs,
        servers: ClusterServers,
        history: History,
        rng: random.Random,
    ) -> None:
        self._processes = processes
        self._bmcs = bmcs
        self._servers = servers
        self._history = history
        self._rng = rng
        self._failure = FAILURE
        self._kubelets: dict[str, Kubelet] = {}
        self._silent_s: dict[str, float] = {}
        """When heartbeats of a DPU start again."""
        self._heard_s: dict[tuple[str, str], float] = {}
        """The last heartbeat of each Node, by the address of its API server and its name."""

    async def run(self) -> None:
        """Run kubelets until cancelled."""
        while True:
            for name, cluster in self._allocated():
                await self._step(name, cluster)
            for address, server in self._servers.servers.items():
                if not server.faults.is_down:
                    await self._control_nodes(address, server)
            await asyncio.sleep(LOOK_S)

    async def disturb(self, director: Director, seed: int, pause_s: float) -> None:
        """Stop heartbeats of a DPU for some time, again and again, until cancelled."""

        def draw(rng: random.Random) -> tuple[float, str]:
            return rng.expovariate(1 / pause_s), "silence"

        async for action in director.actions(NAME, draw):
            rng, now_s = action.rng(seed), current_loop().time()
            if self._kubelets:
                action.description = name = rng.choice([*self._kubelets])
                self._history.note(now_s, "heartbeats stopped", name)
                self._silent_s[name] = now_s + rng.uniform(*SILENT_S)

    def heal(self) -> None:
        """End all faults."""
        self._failure = 0.0
        self._silent_s.clear()

    def _allocated(self) -> Iterator[tuple[str, str]]:
        """Each DPU that its zone has for an object, and is not deleting, with its DPUCluster; empty if it has none."""
        process = latest(self._processes)
        if process is None or process.instance is None:
            return
        state, folds = resources_of(process), FoldStates(process.instance.replica)
        found: dict[str, str] = {}
        for partition in process.instance.replica.partitions(ZONES):
            zones = folds.zones_at(partition)
            for name in sorted(zones.wanted.rows):
                row = zones.dpus.rows.get(name)
                if row is not None and row.phase != DELETING and row.bmc_address.startswith(SCHEME):
                    found[name] = cluster_of(state, zones.wanted.rows[name].object) or ""
        yield from found.items()

    async def _step(self, name: str, cluster: str) -> None:
        """One heartbeat of a kubelet, if it runs."""
        device, now_s = self._bmcs.device(name), current_loop().time()
        if not device.image:
            self._kubelets.pop(name, None)
            return
        kubelet = self._kubelets.get(name)
        if kubelet is None or kubelet.boot != device.boots:
            kubelet = self._kubelets[name] = Kubelet(device.boots, now_s + self._rng.uniform(0.0, BOOT_S))
        address = self._servers.addresses.get(cluster)
        if now_s < max(kubelet.starts_s, self._silent_s.get(name, 0.0)) or address is None:
            return
        server = self._servers.servers[address]
        with suppress(ApiError):
            if kubelet.address != address:
                await _register(server, name)
                kubelet.address = address
            await self._beat(server, address, name, f"boot-{device.boots}")

    async def _beat(self, server: SimulatedApi, address: str, name: str, boot_id: str) -> None:
        node = server.objects(NODES).get(name)
        if node is None or server.faults.is_down:
            return
        self._heard_s[address, name] = current_loop().time()
        status = next_node(node, self._rng.random(), self._failure, boot_id)
        if status is not None:
            await _state(server, name, status)

    async def _control_nodes(self, address: str, server: SimulatedApi) -> None:
        """State of each Node without heartbeats that it is unknown."""
        now_s = current_loop().time()
        for name, node in [*server.objects(NODES).items()]:
            if now_s > self._heard_s.get((address, name), now_s) + GRACE_S:
                status = silent_node(node)
                if status is not None:
                    await _state(server, name, status)


async def _register(server: SimulatedApi, name: str) -> None:
    """Create the Node of a DPU; one that exists stays, as after a reboot."""
    try:
        await create(server, NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    except ApiError as error:
        if error.status != CONFLICT:
            raise


async def _state(server: SimulatedApi, name: str, status: Mapping[str, Any]) -> None:
    with suppress(ApiError):
        await server.patch(f"{NODES}/{name}/status", {"status": dict(status)}, "merge")
