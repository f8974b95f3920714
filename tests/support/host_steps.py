"""Provisioners of DPUs that objects want, over one in-memory log with simulated devices and hosts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from deploy.composition.executors import EXECUTORS, parts_of, sweeps_of
from deploy.composition.host_connections import HostConnections
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from drivers.hosts.simulated_hosts import SimulatedHost, SimulatedHosts
from drivers.provisioning.host_taints import HostTaints
from drivers.provisioning.maintenance_sweep import MaintenanceSweep
from drivers.provisioning.provisioner import Provisioner
from drivers.timers import Timers
from eventstore.log import RESOURCES, Partition
from projections.fold_states import FoldStates
from projections.resources import kinds
from projections.resources.handover import BMC_ADDRESS
from projections.resources.state import LOCAL, ObjectId, Resource, ResourcesState
from schemas.events import DpuRegistered, DpusAllocated, ResourcesApplied, ResourcesDeleted, ResourcesObserved
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.memory_plane import Plane

NAMESPACE = "dpf"
QUIET = BmcFaults(latency_s=0.001)


class HostsPlane(Plane):
    """A plane with simulated hosts. Its provisioners are started by `provision`."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        faults: BmcFaults = QUIET,
        seed: int = 1,
        source: str = LOCAL,
        namespace: str = NAMESPACE,
    ) -> None:
        super().__init__(tasks, 2, seed)
        self.source, self.namespace = source, namespace
        now_s = asyncio.get_running_loop().time
        self.bmcs = SimulatedBmcs(now_s=now_s, rng=self.rng(), faults=faults)
        self.simulated = SimulatedHosts(self.bmcs, now_s=now_s, rng=self.rng(), faults=faults)
        self.connections = HostConnections(simulated=self.simulated)

    async def provision(self, name: str) -> Provisioner:
        """Start a process that provisions."""
        life = await self.start(name, "api", "provisioner", acts=False)
        rng = self.rng()
        parts = parts_of(life.replica, self.bmcs.connect, self.connections, now_ms=self.now_ms, rng=rng)
        executors = {key: make(parts) for key, make in EXECUTORS.items()}
        ranks = self.ranks(name)
        found = Provisioner(life.replica, ranks, executors, now_ms=self.now_ms, rng=self.rng())
        self.spawn(name, found.run())
        accepts = sweeps_of(self.connections, with_device=True)
        sweep = MaintenanceSweep(
            life.replica, ranks, parts.maintenances, parts.facts, accepts=accepts, role="provisioner", rng=self.rng()
        )
        self.spawn(name, sweep.run())
        hosts = self.connections.host
        taints = HostTaints(life.replica, ranks, hosts, accepts=accepts, role="provisioner", rng=self.rng())
        self.spawn(name, taints.run())
        self.spawn(name, Timers(life.replica, ranks, now_ms=self.now_ms, rng=self.rng()).run())
        return found

    @property
    def objects(self) -> ResourcesState:
        return FoldStates(self._any()).resources(self.source)

    def object(self, kind: str, name: str) -> Resource | None:
        return self.objects.objects.rows.get(ObjectId(self.source, kind, self.namespace, name).key)

    def host(self, name: str) -> SimulatedHost:
        return self.simulated.hosts[LOCAL, name]

    async def state(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        namespace: str | None = None,
        revision: int = -1,
    ) -> None:
        """State an object as a user: as an edit of a revision, or by a manifest."""
        event = ResourcesApplied(
            self.command(name),
            self.source,
            [kind],
            [self.namespace if namespace is None else namespace],
            [name],
            *self._incarnation(name),
            [],
            [dict(labels or {})],
            [dict(annotations or {})],
            [json.dumps(spec or {})],
            [],
            [revision],
        )
        answer = await self._any().submit(self.resources_partition, self.source.encode(), event, timeout_s=30.0)
        assert answer.outcome.code in ("done", "unchanged"), answer

    def _incarnation(self, name: str) -> tuple[list[str], list[int], list[int]]:
        """The columns that a Kubernetes cluster assigns."""
        return ([], [], []) if self.source == LOCAL else ([f"uid-{name}"], [1], [1])

    async def annotate(self, kind: str, name: str, **changes: str | None) -> None:
        """Change annotations of an object as a user; None removes one. A key is a constant of a module of names."""
        row = self.object(kind, name)
        assert row is not None
        annotations = {key: value for key, value in (row.annotations | changes).items() if value is not None}
        revision = row.changed_offset
        await self.state(
            kind, name, json.loads(row.spec), labels=row.labels, annotations=annotations, revision=revision
        )

    async def unstate(self, kind: str, name: str) -> None:
        """Delete an object as a user."""
        event = ResourcesDeleted(self.command(name), self.source, [kind], [self.namespace], [name], [])
        await self._any().submit(self.resources_partition, self.source.encode(), event, timeout_s=30.0)

    async def observe(self, at: ObjectId, **fields: Any) -> None:
        """Observe the real thing behind an object."""
        text = json.dumps({"ready": True} | fields)
        event = ResourcesObserved(self.command(at.name), at.source, [at.kind], [at.namespace], [at.name], [], [text])
        partition = self.resources_partition
        answer = await self._any().submit(partition, self.source.encode(), event, timeout_s=30.0)
        assert answer.outcome.code == "done", answer

    async def allocate(self, dpu: str, cluster: str) -> None:
        """Make a DPUCluster that is ready, and allocate a DPU to it."""
        await self.state(kinds.DPU_CLUSTER, cluster, {"type": "static", "maxNodes": 10})
        await self.observe(ObjectId(self.source, kinds.DPU_CLUSTER, self.namespace, cluster), phase="Ready")
        partition, at = self.resources_partition, f"{self.namespace}/{cluster}"
        position = self._any().position(partition)
        event = DpusAllocated(self.command(dpu), self.source, position, [self.namespace], [dpu], [at])
        answer = await self._any().submit(partition, self.source.encode(), event, timeout_s=30.0)
        assert answer.outcome.code == "done", answer

    @property
    def resources_partition(self) -> Partition:
        return self._any().partition_for(RESOURCES, self.source)

    async def select(
        self, host: str, *, effect: Mapping[str, Any] | None = None, node_labels: Mapping[str, str] | None = None
    ) -> None:
        """State the DPUSet of the DPUs of a host."""
        spec: dict[str, Any] = {
            "bfb": {"name": "image"},
            "dpuFlavor": "flavor",
            "nodeEffect": effect or {"drain": True},
        }
        if node_labels is not None:
            spec["cluster"] = {"nodeLabels": dict(node_labels)}
        selector = {"matchLabels": {"host": host}}
        await self.state(kinds.DPU_SET, f"of-{host}", {"dpuTemplate": {"spec": spec}, "dpuNodeSelector": selector})

    async def want(
        self,
        host: str,
        *devices: str,
        effect: Mapping[str, Any] | None = None,
        reboot: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        node_labels: Mapping[str, str] | None = None,
    ) -> list[str]:
        """State a DPUNode with these DPUDevices and a DPUSet for them, and register the DPUs. Returns their names."""
        spec = {"dpus": [{"name": each} for each in devices]} | ({"nodeRebootMethod": reboot} if reboot else {})
        await self.state(kinds.DPU_NODE, host, spec, annotations=annotations, labels={"host": host})
        for each in devices:
            address = {BMC_ADDRESS: f"simulated:{host}-{each}"}
            labels = {DPU_NODE_NAME: host}
            await self.state(kinds.DPU_DEVICE, each, {"serialNumber": each}, labels=labels, annotations=address)
        await self.select(host, effect=effect, node_labels=node_labels)
        names = [f"{host}-{each}" for each in devices]
        for name in names:
            await self.register_on(host, name)
        return names

    async def register_on(self, host: str, name: str) -> None:
        """Register a DPU of a host as an operator."""
        event = DpuRegistered(self.command(name), "z1", name, host, "", f"simulated:{name}")
        assert (await self.submit("z1", event)).outcome.code == "done"
