"""Which process takes which step: it needs the device, the cluster of the host, or the cluster of the DPU."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from deploy.composition.executors import StepParts, accepts_of
from deploy.composition.host_connections import HostConnections
from drivers.backends.simulated_bmc import SimulatedBmcs
from drivers.hosts.objects import Stores
from drivers.provisioning.attempts import Attempt
from drivers.provisioning.cluster import RECHECK_S, ClusterExecutor, ClusterNodes
from drivers.provisioning.device import DeviceExecutor
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.object_facts import ObjectFacts
from projections.resources.clusters import cluster_source
from projections.resources.kinds import DPU, DPU_CLUSTER
from projections.resources.state import LOCAL, ObjectId
from projections.zones.dpus.phases import CLUSTER_CONFIG, HOST_NETWORK, NODE_EFFECT, OS_INSTALLING, SERVICE_READINESS
from projections.zones.rows import Dpu
from schemas.kubernetes.api import KubernetesApi

EAST = "east"
CLUSTER = ObjectId(EAST, DPU_CLUSTER, "dpf", "dpus").key
DPU_CLUSTER_SOURCE = cluster_source(CLUSTER)


@dataclass
class Facts:
    """A DPU of one source that is allocated to a cluster."""

    source: str
    cluster: str
    has_clusters: bool = True

    async def of(self, dpu: str) -> SimpleNamespace:
        return SimpleNamespace(cluster=self.cluster, key=ObjectId(self.source, DPU, "dpf", dpu).key)

    def has_cluster(self, source: str) -> bool:
        return self.has_clusters

    async def changed(self) -> None:
        await asyncio.Event().wait()

    def sources_of(self, dpu: str, row: Dpu) -> set[str]:
        return {self.source}

    def cluster_of(self, dpu: str, row: Dpu) -> str:
        return self.cluster


def accepts(phase: str, *connected: str, source: str = EAST, cluster: str = CLUSTER, with_device: bool = False) -> bool:
    """Whether a process with these connections takes the step of a simulated DPU."""
    api = cast(KubernetesApi, object())
    hosts = HostConnections(lambda source: api if source in connected else None)
    device = DeviceExecutor(SimulatedBmcs(now_s=lambda: 0.0, rng=Random(1)).connect)
    parts = StepParts(
        device,
        cast(ObjectFacts, Facts(source, cluster)),
        hosts,
        cast(Stores, None),
        cast(Maintenances, None),
        ClusterNodes(hosts.dpu_nodes),
        has_devices=with_device,
    )
    return accepts_of(parts)("d", Dpu("z", 0, "n", "s", "simulated:d", phase, 1, 1, 1, 1))


@pytest.mark.parametrize("phase", [OS_INSTALLING, HOST_NETWORK])
def test_a_step_on_a_device_needs_the_device(phase: str) -> None:
    assert accepts(phase, with_device=True)
    assert not accepts(phase, EAST, DPU_CLUSTER_SOURCE)


def test_a_step_on_a_host_needs_its_cluster() -> None:
    assert accepts(NODE_EFFECT, EAST)
    assert not accepts(NODE_EFFECT)
    assert not accepts(NODE_EFFECT, with_device=True), "another process has the cluster"
    assert accepts(NODE_EFFECT, source=LOCAL, with_device=True)


@pytest.mark.parametrize("phase", [CLUSTER_CONFIG, SERVICE_READINESS])
def test_a_step_in_a_dpu_cluster_is_left_to_a_replica_that_is_connected_to_it(phase: str) -> None:
    assert accepts(phase, EAST, DPU_CLUSTER_SOURCE)
    assert not accepts(phase, EAST)
    assert accepts(phase, EAST, cluster=""), "the step says that it waits for a DPUCluster"
    assert accepts(phase, EAST, with_device=True), "a simulated device stands for its node"


@pytest.mark.virtual_clock
async def test_a_process_without_devices_never_lets_a_simulated_one_stand_for_its_node() -> None:
    """Its folds may learn of the DPU cluster after it has taken the step, and its connection may end."""
    said: list[str] = []

    async def report_wait(message: str, reported: str) -> str:
        said.append(message)
        return message

    clusters = ClusterNodes(HostConnections().dpu_nodes)
    facts = Facts(EAST, "")
    executor = ClusterExecutor(cast(ObjectFacts, facts), clusters, device=None)
    row = Dpu("z", 0, "n", "s", "simulated:d", CLUSTER_CONFIG, 1, 1, 1, 1)
    attempt = SimpleNamespace(name="d", dpu=row, report_wait=report_wait)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5 * RECHECK_S):
            await executor.run(cast(Attempt, attempt))
    facts.cluster = CLUSTER
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(RECHECK_S / 2):
            await executor.run(cast(Attempt, attempt))
    assert said == [*["waits for a DPUCluster"] * 2, "waits for a connection to DPUCluster dpf/dpus"]


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("source", "has_clusters", "stands"), [(EAST, True, False), (EAST, False, True), (LOCAL, True, True)]
)
async def test_a_simulated_device_stands_for_its_node_unless_a_real_cluster_is_on_its_way(
    source: str, has_clusters: bool, stands: bool
) -> None:
    ran: list[Attempt] = []

    class Device:
        async def run(self, attempt: Attempt) -> Mapping[str, str]:
            ran.append(attempt)
            return {}

    async def report_wait(message: str, reported: str) -> str:
        return message

    clusters = ClusterNodes(HostConnections().dpu_nodes, lambda source: source == EAST)
    executor = ClusterExecutor(cast(ObjectFacts, Facts(source, "", has_clusters)), clusters, Device())
    row = Dpu("z", 0, "n", "s", "simulated:d", CLUSTER_CONFIG, 1, 1, 1, 1)
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * RECHECK_S):
            await executor.run(cast(Attempt, SimpleNamespace(name="d", dpu=row, report_wait=report_wait)))
    assert bool(ran) == stands
