"""The nodes of DPUs in a real DPU cluster: they join, get their labels, run their services, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from deploy.composition.host_connections import HostConnections
from drivers.hosts.host import DONE
from drivers.kubernetes.hosts.dpu_nodes import KubernetesDpuNodes
from drivers.provisioning.cluster import ClusterNodes
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.node_labels import NodeLabels
from drivers.provisioning.object_facts import ObjectFacts
from projections.kubernetes.dpu_node import LAST_APPLIED
from projections.resources.kinds import DPU, NODE
from projections.resources.state import ObjectId
from schemas.resources.dpf.names import SERVICE_ID
from tests.support.host_steps import HostsPlane
from tests.support.kubernetes.api_server import MADE_BY_TESTS
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get
from tests.support.memory_plane import running

READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}}
SEEN_S = 60.0


class Scene:
    """A node of a DPU, as its kubelet would make it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"{cluster.prefix}-dpu"
        self.nodes = KubernetesDpuNodes(cluster.api)

    async def add(self) -> None:
        labels = {MADE_BY_TESTS: self.cluster.prefix, "theirs": "1", "role": "old"}
        await create(self.cluster.api, "/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}})

    async def metadata(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (await get(self.cluster.api, f"/api/v1/nodes/{self.name}"))["metadata"]
        return found

    async def set_ready(self, path: str) -> None:
        await self.cluster.api.patch(f"{path}/status", READY, "merge")

    async def add_service(self, name: str, selector: Mapping[str, str]) -> str:
        """A DaemonSet of a service. Returns its uid."""
        labels = {"app": name, SERVICE_ID: name}
        pod = {"nodeSelector": selector, "containers": [{"name": "c", "image": "example.com/c"}]}
        body = {
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/daemonsets"
        return str((await create(self.cluster.api, path, body))["metadata"]["uid"])

    async def add_pod(self, name: str, uid: str, **labels: str) -> str:
        """A pod of a DaemonSet on the node. Returns its path."""
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid, "controller": True}
        spec = {"nodeName": self.name, "containers": [{"name": "c", "image": "example.com/c"}]}
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        await create(self.cluster.api, path, {"metadata": metadata, "spec": spec})
        return f"{path}/{name}"


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    found = Scene(cluster)
    yield found
    await found.nodes.remove(found.name)


async def test_a_node_gets_its_labels_once_it_is_ready_and_loses_those_that_it_no_longer_has(scene: Scene) -> None:
    nodes, name = scene.nodes, scene.name
    assert "join its cluster" in (await nodes.join(name, {}, {})).message
    joined = asyncio.create_task(nodes.changed(name))
    await asyncio.sleep(0.2)
    await scene.add()
    await asyncio.wait_for(joined, SEEN_S)
    assert "ready" in (await nodes.join(name, {}, {})).message
    await scene.set_ready(f"/api/v1/nodes/{name}")
    assert await nodes.join(name, {"role": "dpu", "rev": "1"}, {"note": "a"}) == DONE
    found = await scene.metadata()
    assert {key: found["labels"][key] for key in ("theirs", "role", "rev")} == {
        "theirs": "1",
        "role": "dpu",
        "rev": "1",
    }
    assert found["annotations"]["note"] == "a"
    version = found["resourceVersion"]
    assert await nodes.join(name, {"role": "dpu", "rev": "1"}, {"note": "a"}) == DONE
    assert (await scene.metadata())["resourceVersion"] == version, "nothing is written again"
    assert await nodes.join(name, {"rev": "2"}, {}) == DONE
    found = await scene.metadata()
    assert found["labels"]["rev"] == "2" and "role" not in found["labels"] and found["labels"]["theirs"] == "1"
    assert "note" not in found["annotations"] and LAST_APPLIED in found["annotations"]


async def test_the_services_that_select_a_node_must_be_ready_on_it(scene: Scene) -> None:
    nodes, name = scene.nodes, scene.name
    await scene.add()
    prefix = scene.cluster.prefix
    uid = await scene.add_service("hbn", {MADE_BY_TESTS: prefix})
    await scene.add_service("other", {MADE_BY_TESTS: "another"})
    assert (await nodes.services(name, None)).message == "waits for a pod of service hbn"
    path = await scene.add_pod("hbn", uid)
    assert (await nodes.services(name, None)).message == "waits for pod hbn of service hbn"
    changed = asyncio.create_task(nodes.changed(name))
    await asyncio.sleep(0.2)
    await scene.set_ready(path)
    await asyncio.wait_for(changed, SEEN_S)
    assert await nodes.services(name, None) == DONE


async def test_only_the_services_that_are_awaited_must_be_ready(scene: Scene) -> None:
    nodes, name = scene.nodes, scene.name
    await scene.add()
    uid = await scene.add_service("other", {MADE_BY_TESTS: scene.cluster.prefix})
    critical = frozenset(("hbn",))
    assert (await nodes.services(name, None)).message == "waits for a pod of service other"
    assert (await nodes.services(name, critical)).message == "waits for a pod of service hbn"
    path = await scene.add_pod("hbn-1", uid, **{SERVICE_ID: "hbn"})
    waiting = {"name": "c", "ready": False, "restartCount": 1, "image": "x", "imageID": ""}
    status = {"containerStatuses": [{**waiting, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    await scene.cluster.api.patch(f"{path}/status", {"status": status}, "merge")
    expected = "waits for pod hbn-1 of service hbn (ImagePullBackOff)"
    assert (await nodes.services(name, critical)).message == expected
    await scene.set_ready(path)
    assert await nodes.services(name, critical) == DONE
    assert await nodes.services(name, frozenset()) == DONE


async def test_a_removed_node_may_be_removed_again(scene: Scene) -> None:
    await scene.add()
    await scene.nodes.remove(scene.name)
    assert "join its cluster" in (await scene.nodes.services(scene.name, None)).message
    await scene.nodes.remove(scene.name)


async def test_a_dpu_that_serves_gets_changed_labels_without_an_install(scene: Scene) -> None:
    """The labels of its DPUSet change while it is ready; what was observed of its node says what differs."""
    api, host = scene.cluster.api, scene.cluster.prefix
    async with running(lambda tasks: HostsPlane(tasks, source="east")) as made:
        life = await made.start("p1", "api", "kubernetes", acts=False)
        connections = HostConnections({"east.dpf.dc": api}.get)
        nodes = ClusterNodes(connections.dpu_nodes)
        facts, ranks = ObjectFacts(life.replica), made.ranks("p1")
        maintenances = Maintenances(
            connections.store(life.replica, made.now_ms, made.rng()), connections.host, facts, made.now_ms
        )
        labels = NodeLabels(life.replica, ranks, nodes, maintenances, facts, role="kubernetes", rng=made.rng())
        made.spawn("p1", labels.run())
        (name,) = await made.want(host, "dpu", node_labels={"rev": "1"})
        await made.allocate(name, "dc")
        assert name == scene.name
        await scene.add()
        await scene.set_ready(f"/api/v1/nodes/{name}")
        node = ObjectId("east.dpf.dc", NODE, "", name)
        await made.observe(node, labels={"rev": "0"})
        await asyncio.sleep(0.5)
        assert "rev" not in (await scene.metadata())["labels"], "a DPU that is not ready gets them when it joins"
        await made.observe(ObjectId("east", DPU, "dpf", name), phase="Ready")
        for revision in ("1", "2"):
            await eventually(scene, revision)
            found = await scene.metadata()
            kept = {key: value for key, value in found["annotations"].items() if "dpuplane" in key}
            await made.observe(node, labels=dict(found["labels"]), annotations=kept)
            await made.until(lambda: labels.differing == 0, timeout_s=SEEN_S)
            await made.select(host, node_labels={"rev": "2"})


async def eventually(scene: Scene, revision: str) -> None:
    async with asyncio.timeout(SEEN_S):
        while (await scene.metadata())["labels"].get("rev") != revision:
            await asyncio.sleep(0.05)
