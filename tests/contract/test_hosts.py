"""Runs the contract of Host on a node of a real API server and on a simulated host."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any

import pytest

from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from drivers.hosts.simulated_hosts import SimulatedHost, SimulatedHosts
from drivers.kubernetes.hosts.host import KubernetesHost
from projections.resources.kinds import DPU_NODE
from projections.resources.state import ObjectId
from projections.resources.step_facts import HostRef
from tests.contract.host import HostContract, HostUnderTest
from tests.support.kubernetes.api_server import MADE_BY_TESTS
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get


class KubernetesNode(HostUnderTest):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"{cluster.prefix}-n"
        ref = HostRef(ObjectId("east", DPU_NODE, cluster.namespace, self.name), cluster.namespace, is_external=True)
        self.host = KubernetesHost(cluster.api, ref)

    async def create(self) -> None:
        metadata = {"name": self.name, "labels": {MADE_BY_TESTS: self.cluster.prefix}}
        await create(self.cluster.api, "/api/v1/nodes", {"metadata": metadata})
        daemon = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
        await self.add_pod("work-1")
        await self.add_pod("work-2")
        await self.add_pod("daemon", ownerReferences=daemon)

    async def add_pod(self, name: str, **metadata: Any) -> None:
        """A pod on the node. Without a kubelet, it ends when it is deleted."""
        spec = {
            "nodeName": self.name,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "work", "image": "example.com/work"}],
        }
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        await create(self.cluster.api, path, {"metadata": {"name": name, **metadata}, "spec": spec})

    async def pods(self) -> list[str]:
        found = await get(self.cluster.api, f"/api/v1/namespaces/{self.cluster.namespace}/pods")
        return sorted(each["metadata"]["name"] for each in found["items"])

    async def node(self) -> Mapping[str, Any]:
        return await get(self.cluster.api, f"/api/v1/nodes/{self.name}")

    async def change(self, patch: Mapping[str, Any]) -> None:
        await self.cluster.api.patch(f"/api/v1/nodes/{self.name}", patch, "merge")


class TestKubernetesHost(HostContract):
    @pytest.fixture
    async def tested(self, cluster: Cluster) -> AsyncIterator[HostUnderTest]:
        found = KubernetesNode(cluster)
        await found.create()
        yield found
        await cluster.api.delete(f"/api/v1/nodes/{found.name}", uid=(await found.node())["metadata"]["uid"])


class SimulatedUnderTest(HostUnderTest):
    def __init__(self) -> None:
        now_s = asyncio.get_running_loop().time
        bmcs = SimulatedBmcs(now_s=now_s, rng=Random(1))
        hosts = SimulatedHosts(bmcs, now_s=now_s, rng=Random(2), faults=BmcFaults(latency_s=0.001))
        ref = HostRef(ObjectId("local", DPU_NODE, "dpf", "h1"), "dpf", is_external=False)
        host = hosts.host(ref, "simulated:d1")
        assert isinstance(host, SimulatedHost)
        self.host = self.simulated = host

    async def node(self) -> Mapping[str, Any]:
        return copy.deepcopy(self.simulated.node)

    async def change(self, patch: Mapping[str, Any]) -> None:
        self.simulated.change(patch)


@pytest.mark.virtual_clock
class TestSimulatedHost(HostContract):
    @pytest.fixture
    async def tested(self) -> HostUnderTest:
        return SimulatedUnderTest()
