"""Runs the contract of ObjectStore on the log and on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from drivers.hosts.logged_objects import LoggedObjects
from drivers.kubernetes.hosts.stored_objects import KubernetesObjects
from projections.resources.kinds import DPU_NODE_MAINTENANCE, NODE
from projections.resources.state import LOCAL, ObjectId
from schemas.resources.crds import definition
from schemas.resources.dpf import node
from tests.contract.object_store import ObjectStoreContract, StoreUnderTest
from tests.support.host_steps import NAMESPACE, HostsPlane
from tests.support.kubernetes.api_server import MADE_BY_TESTS
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get, install
from tests.support.memory_plane import running


class Logged(StoreUnderTest):
    source, namespace = LOCAL, NAMESPACE

    def __init__(self, plane: HostsPlane) -> None:
        self.plane = plane
        self.store = LoggedObjects(plane.replicas["p1"], LOCAL, now_ms=plane.now_ms, rng=plane.rng())

    async def annotate(self, name: str, key: str) -> None:
        await self.plane.annotate(DPU_NODE_MAINTENANCE, name, **{key: "yes"})


@pytest.mark.virtual_clock
class TestLoggedObjects(ObjectStoreContract):
    @pytest.fixture
    async def tested(self) -> AsyncIterator[StoreUnderTest]:
        async with running(HostsPlane) as plane:
            await plane.start("p1", "api", "provisioner", acts=False)
            yield Logged(plane)


class InCluster(StoreUnderTest):
    source = "east"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.namespace
        self.store = KubernetesObjects(cluster.api)

    async def annotate(self, name: str, key: str) -> None:
        path = node.DPU_NODE_MAINTENANCE.path(self.namespace, name)
        await self.cluster.api.patch(path, {"metadata": {"annotations": {key: "yes"}}}, "merge")


class TestKubernetesObjects(ObjectStoreContract):
    @pytest.fixture
    async def tested(self, cluster: Cluster) -> StoreUnderTest:
        await install(cluster.api, definition(node.DPU_NODE_MAINTENANCE))
        return InCluster(cluster)

    async def test_annotations_of_a_node_are_edited_and_nothing_else_of_it(self, cluster: Cluster) -> None:
        name, store = f"{cluster.prefix}-n", KubernetesObjects(cluster.api)
        metadata = {"name": name, "annotations": {"a": "1", "b": "1"}, "labels": {MADE_BY_TESTS: cluster.prefix}}
        made = await create(cluster.api, "/api/v1/nodes", {"metadata": metadata})
        at = ObjectId("east", NODE, "", name)
        found = await store.get(at)
        assert found is not None
        await store.put(found._replace(annotations={"b": "2"}, labels={}, spec={"unschedulable": True}))
        changed = await get(cluster.api, f"/api/v1/nodes/{name}")
        assert changed["metadata"]["annotations"] == {"b": "2"} and changed["spec"] == made["spec"]
        assert changed["metadata"]["labels"] == made["metadata"]["labels"]
        await store.put(found._replace(annotations={"b": "3"}))
        again = await store.get(at)
        assert again is not None and again.annotations == {"b": "2"}
        await cluster.api.delete(f"/api/v1/nodes/{name}", uid=made["metadata"]["uid"])
