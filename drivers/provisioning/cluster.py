"""The executor of steps in the DPU cluster: the DPU joins it as a node, gets its labels, and runs its services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from drivers.hosts.host import Progress
from drivers.hosts.waiting import first_of
from drivers.provisioning.attempts import Attempt, Executor
from drivers.provisioning.object_facts import ObjectFacts
from projections.resources.kinds import short_name
from projections.resources.specs import Labels
from projections.resources.state import object_id
from projections.resources.step_facts import StepFacts
from projections.zones.dpus.install_interfaces import is_simulated
from projections.zones.dpus.phases import CLUSTER_CONFIG

RECHECK_S = 10.0


class DpuNodes(Protocol):
    """The nodes of a DPU cluster. Any call may raise Unreachable or NeedsOperator, may be repeated, and reads before it
    writes."""

    async def join(self, node: str, labels: Labels, annotations: Labels) -> Progress:
        """Done when the node is ready and has these labels and annotations, and none of those that it got earlier."""
        ...

    async def services(self, node: str, awaited: frozenset[str] | None) -> Progress:
        """Done when every awaited service that the node must run is ready on it. Services are given by their ids; None
        stands for all."""
        ...

    async def remove(self, node: str) -> None:
        """Delete the node; no error if it does not exist."""
        ...

    async def changed(self, node: str) -> None:
        """Return when the node, or a pod on it, may have changed. The caller has a deadline."""
        ...


Clusters: TypeAlias = Callable[[str, str], DpuNodes | None]
"""The nodes of a DPU cluster by the key of its DPUCluster, for a DPU with this BMC; None while the plane has no
connection to the cluster."""


class ClusterNodes:
    """The nodes of DPUs in their clusters. `reaches` tells whether the process is connected to a source cluster, and so
    connects to the DPU clusters of that source."""

    def __init__(self, clusters: Clusters, reaches: Callable[[str], bool] = lambda source: False) -> None:
        self._clusters = clusters
        self.reaches = reaches

    def of(self, cluster: str, bmc_address: str = "") -> DpuNodes | None:
        return self._clusters(cluster, bmc_address) if cluster else None

    async def remove(self, attempt: Attempt, cluster: str) -> None:
        """Delete the node of a DPU. In a cluster without a connection the node stays until an operator deletes it."""
        nodes = self.of(cluster)
        if nodes is not None:
            await attempt.call(lambda: nodes.remove(attempt.name))


class ClusterExecutor:
    """Executes the steps of DPU clusters. `device` executes those of a DPU that stands for its node, if this process
    has devices."""

    def __init__(self, facts: ObjectFacts, clusters: ClusterNodes, device: Executor | None) -> None:
        self._facts = facts
        self._clusters = clusters
        self._device = device

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        reported = ""
        while True:
            facts = await self._facts.of(attempt.name)
            nodes = None if facts is None else self._clusters.of(facts.cluster, attempt.dpu.bmc_address)
            if self._device is not None and (
                facts is None or (nodes is None and self._stands_for_node(attempt, facts))
            ):
                return await self._device.run(attempt)
            if facts is None or nodes is None:
                progress = _without_connection("" if facts is None else facts.cluster)
            else:
                progress = await self._advance(attempt, nodes, facts)
            if progress.is_done:
                return {}
            reported = await attempt.report_wait(progress.message, reported)
            changes = () if nodes is None else (nodes.changed(attempt.name),)
            await first_of(self._facts.changed(), *changes, timeout_s=RECHECK_S)

    def _stands_for_node(self, attempt: Attempt, facts: StepFacts) -> bool:
        """Whether the device is the node of its DPU: a simulated one is, unless a real DPU cluster is on its way."""
        source = object_id(facts.key).source
        is_awaited = self._clusters.reaches(source) and self._facts.has_cluster(source)
        return is_simulated(attempt.dpu.bmc_address) and not is_awaited

    async def _advance(self, attempt: Attempt, nodes: DpuNodes, facts: StepFacts) -> Progress:
        if attempt.dpu.phase == CLUSTER_CONFIG:
            return await attempt.call(lambda: nodes.join(attempt.name, facts.node_labels, facts.node_annotations))
        awaited = await self._facts.awaited_services(facts)
        progress = await attempt.call(lambda: nodes.services(attempt.name, awaited), alters=False)
        wait = await self._facts.operational_wait(facts) if progress.is_done else ""
        return Progress(False, f"waits for {wait}") if wait else progress


def _without_connection(cluster: str) -> Progress:
    if not cluster:
        return Progress(False, "waits for a DPUCluster")
    return Progress(False, f"waits for a connection to {short_name(cluster)}")
