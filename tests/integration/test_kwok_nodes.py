"""Hundreds of Nodes with heartbeats, and the daemon pods of a compute domain on them, in a cluster with kwok, the
scheduler and controllers. Each step prints how long it took."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from eventstore.log import Partition
from schemas.kubernetes.api import KubernetesApi
from schemas.resources import KINDS
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL, UPSTREAM_KINDS
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.faulting_proxy import FaultingProxy, faulting
from tests.support.kubernetes.kwok_nodes import KwokNodes, create_daemon_set, rack_node
from tests.support.kubernetes.requests import create, get, install
from tests.support.served import now_ms

RACKS, SLOTS = 17, 18
COUNT = RACKS * SLOTS
NAMESPACE = "default"
PATIENCE_S = 240.0
QUIET_S = 60.0
SETTLED_S = 20.0
"""Longer than the maximum time between two writes of a status."""


class Scene:
    """A cluster with kwok, and a plane that reaches it through a proxy."""

    def __init__(self, cluster: ControlPlane, api: KubernetesApi, proxy: FaultingProxy, plane: Plane) -> None:
        self.cluster = cluster
        self.api = api
        self.proxy = proxy
        self.plane = plane
        self.nodes = KwokNodes(api)
        self.domain = ""
        self.figures: list[str] = []

    @contextmanager
    def timed(self, what: str) -> Any:
        began_s, committed = time.monotonic(), len(self.proxy.committed)
        yield
        took_s, writes = time.monotonic() - began_s, len(self.proxy.committed) - committed
        self.figures.append(f"{what}: {took_s:.1f} s, {writes} writes of the plane")

    async def create_domain(self) -> None:
        body = {
            "apiVersion": COMPUTE_DOMAIN.api_version,
            "kind": COMPUTE_DOMAIN.name,
            "metadata": {"name": "cd"},
            "spec": {"numNodes": COUNT, "channel": {"resourceClaimTemplate": {"name": "cd-channel"}}},
        }
        self.domain = (await create(self.api, COMPUTE_DOMAIN.path(NAMESPACE), body))["metadata"]["uid"]

    def members(self) -> set[str]:
        """The nodes in fleet."""
        rows = self.plane.states.fleet.members.rows
        return {name.removeprefix("east/") for name, member in rows.items() if not member.held}

    async def racks(self) -> dict[str, int]:
        """The number of nodes that the status of each rack shows."""
        items = (await get(self.api, DPU_RACK.path()))["items"]
        return {item["metadata"]["name"]: item.get("status", {}).get("nodes", 0) for item in items}

    async def cliques(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each clique of the domain, by rack."""
        items = (await get(self.api, COMPUTE_DOMAIN_CLIQUE.path(NAMESPACE)))["items"]
        return {item["metadata"]["name"].split(".")[1]: item.get("daemons") or [] for item in items}

    async def indices(self) -> dict[str, int]:
        """The index of each node with a row."""
        return {row["nodeName"]: row["index"] for rows in (await self.cliques()).values() for row in rows}

    async def pods(self) -> dict[str, str]:
        """The address of each running daemon pod, by node."""
        items = (await get(self.api, f"/api/v1/namespaces/{NAMESPACE}/pods", {"labelSelector": DOMAIN_LABEL}))["items"]
        return {item["spec"]["nodeName"]: item["status"]["podIP"] for item in items if item["status"].get("podIP")}

    async def domain_status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await get(self.api, COMPUTE_DOMAIN.path(NAMESPACE, "cd"))).get("status") or {}
        return found

    async def log_ends(self) -> dict[Partition, int]:
        log = self.plane.replica.log
        topics = self.plane.replica.topics.deciding
        return {each: await log.end(each) for topic in topics for each in log.partitions(topic)}


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.2)


@pytest.fixture
async def scene(kwok_cluster: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Scene]:
    async with (
        connect(str(kwok_cluster.kubeconfig())) as api,
        faulting(kwok_cluster) as proxy,
    ):
        await install(api, *map(definition, (*KINDS, *UPSTREAM_KINDS)))
        async with started_plane(tmp_path / "plane", kwok_cluster.kubeconfig(server=proxy.url)) as plane:
            found = Scene(kwok_cluster, api, proxy, plane)
            await found.create_domain()
            yield found
    with capsys.disabled():
        print("", *found.figures, sep="\n")


@asynccontextmanager
async def started_plane(data: Path, kubeconfig: Path) -> AsyncIterator[Plane]:
    flags: dict[str, object] = {
        "data": data,
        "kubeconfig": str(kubeconfig),
        "source": "east",
        "kubernetes_status": True,
        "kubernetes_cliques": "assign",
        "driver_namespace": NAMESPACE,
        **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
    }
    async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=random.Random(3)) as plane:
        yield plane


def rack_of(number: int) -> list[str]:
    return [f"r{number}-n{each}" for each in range(SLOTS)]


async def join(scene: Scene, domain: str = "") -> None:
    """Create all Nodes. Returns when they are ready, have joined, and are counted in the statuses of their racks."""
    with scene.timed(f"{COUNT} Nodes are created"):
        await scene.nodes.create(rack_node(rack, n, domain) for rack in range(RACKS) for n in range(SLOTS))

    async def are_ready() -> bool:
        return len(await scene.nodes.heartbeats()) == COUNT

    async def have_joined() -> bool:
        return len(scene.members()) == COUNT

    async def are_counted() -> bool:
        return await scene.racks() == {f"r{rack}": SLOTS for rack in range(RACKS)}

    with scene.timed("all have joined"):
        await until(have_joined)
    with scene.timed("all are ready"):
        await until(are_ready)
    with scene.timed("all are in the statuses of their racks"):
        await until(are_counted)


async def form(scene: Scene) -> dict[str, int]:
    """Start the daemons of all Nodes. Returns their indices when the domain is ready."""
    with scene.timed("all daemon pods have a row and are ready"):
        await create_daemon_set(scene.api, NAMESPACE, scene.domain)

        async def is_ready() -> bool:
            return (await scene.domain_status()).get("status") == "Ready"

        await until(is_ready)
    return await scene.indices()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_minute_of_heartbeats_adds_no_event_and_writes_no_status(scene: Scene) -> None:
    await join(scene)
    await asyncio.sleep(SETTLED_S)
    beats, renewals = await scene.nodes.heartbeats(), await scene.nodes.renewals()
    ends, committed = await scene.log_ends(), len(scene.proxy.committed)
    with scene.timed("heartbeats"):
        await asyncio.sleep(QUIET_S)
    later, renewed = await scene.nodes.heartbeats(), await scene.nodes.renewals()
    assert len(beats) == len(later) == len(renewals) == COUNT
    assert all(later[name] > beats[name] and renewed[name] > renewals[name] for name in beats)
    assert await scene.log_ends() == ends
    assert scene.proxy.committed[committed:] == []
    assert len(scene.members()) == COUNT


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_daemon_pods_get_dense_indices_and_free_them_with_their_nodes(scene: Scene) -> None:
    await join(scene, scene.domain)
    indices = await form(scene)
    pods, cliques = await scene.pods(), await scene.cliques()
    assert len(indices) == len(pods) == COUNT
    for number in range(RACKS):
        rows = cliques[f"r{number}"]
        assert sorted(row["index"] for row in rows) == list(range(SLOTS))
        assert {row["nodeName"] for row in rows} == set(rack_of(number))
        assert all(row["ipAddress"] == pods[row["nodeName"]] and row["status"] == "Ready" for row in rows)
    shown = (await scene.domain_status())["nodes"]
    assert {node["name"]: (node["cliqueID"], node["index"]) for node in shown} == {
        name: (f"{name.partition('-')[0]}.1", index) for name, index in indices.items()
    }

    await delete_a_hundred(scene, indices)
    await drain_one(scene, indices)


async def delete_a_hundred(scene: Scene, indices: dict[str, int]) -> None:
    """Delete five racks of Nodes and ten Nodes of a sixth rack, and create these ten again."""
    ten = [f"r5-n{number}" for number in range(10)]
    lost = {*ten, *(name for rack in range(5) for name in rack_of(rack))}
    kept = {name: index for name, index in indices.items() if name not in lost}

    async def have_left() -> bool:
        return scene.members() == kept.keys()

    async def is_freed() -> bool:
        return await scene.indices() == kept

    async def are_collected() -> bool:
        return (await scene.cliques()).keys() == {f"r{rack}" for rack in range(5, RACKS)}

    with scene.timed(f"{len(lost)} Nodes are deleted and have left"):
        await scene.nodes.delete(lost)
        await until(have_left)
    with scene.timed("their pods are collected and their indices free"):
        await until(is_freed)
    with scene.timed("the objects of their cliques are collected"):
        await until(are_collected)

    async def are_back() -> bool:
        return await scene.indices() == kept | {name: indices[name] for name in ten}

    with scene.timed("10 Nodes come back and have their indices"):
        await scene.nodes.create(rack_node(5, number, scene.domain) for number in range(10))
        await until(are_back)


async def drain_one(scene: Scene, indices: dict[str, int]) -> None:
    """Drain a Node: its workload goes, and its daemon stays with its index until the Node leaves the domain."""
    name = "r9-n3"
    before, pods = await scene.indices(), f"/api/v1/namespaces/{NAMESPACE}/pods"
    spec = {"nodeName": name, "containers": [{"name": "work", "image": "example.com/work"}]}
    await create(scene.api, pods, {"metadata": {"name": "work"}, "spec": spec})
    with scene.timed("a Node is drained"):
        await scene.cluster.kubectl("drain", name, "--ignore-daemonsets", "--force", "--timeout=50s")
    assert "work" not in {item["metadata"]["name"] for item in (await get(scene.api, pods))["items"]}
    await asyncio.sleep(5.0)
    assert await scene.indices() == before
    assert name in scene.members(), "a Node that is cordoned has not left"

    async def is_freed() -> bool:
        return await scene.indices() == {node: index for node, index in before.items() if node != name}

    async def is_back() -> bool:
        return await scene.indices() == before

    with scene.timed("the Node leaves the domain, and its index is free"):
        await scene.nodes.label(name, {DOMAIN_LABEL: None})
        await until(is_freed)
    assert name in scene.members()
    await scene.cluster.kubectl("uncordon", name)
    with scene.timed("the Node is in the domain again, with its index"):
        await scene.nodes.label(name, {DOMAIN_LABEL: scene.domain})
        await until(is_back)
    assert before[name] == indices[name]
