"""Node objects of a real API server become nodes of the plane: bursts, moves, deletions, restarts, a restored etcd."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.web.metrics.catalog import CATALOG
from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError
from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.support.kubernetes.api_server import MADE_BY_TESTS, ApiServer
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import advance, get, install
from tests.support.served import now_ms

RACK = "topology.kubernetes.io/rack"
AT_ONCE = 64
PATIENCE_S = 90.0


def node(name: str, rack: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {RACK: rack, "tier": "gpu", MADE_BY_TESTS: ""}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


class Nodes:
    """The Node objects of a control plane that a test makes and deletes."""

    def __init__(self, cluster: ApiServer, session: aiohttp.ClientSession) -> None:
        self._url = f"{cluster.url}/api/v1/nodes"
        self._session = session

    async def create(self, *nodes: dict[str, Any]) -> None:
        await self._each(self._create, nodes)

    async def delete(self, *names: str) -> None:
        await self._each(self._delete, names)

    async def label(self, name: str, rack: str) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps({"metadata": {"labels": {RACK: rack}}})
        async with self._session.patch(f"{self._url}/{name}", data=body, headers=headers) as response:
            assert response.status == 200, await response.text()

    async def delete_all(self) -> None:
        """Delete the Nodes that tests made. A request for thousands that takes the server longer than a minute is ended
        by it, and sent again."""
        while True:
            async with self._session.delete(self._url, params={"labelSelector": MADE_BY_TESTS}) as response:
                if response.status == 200:
                    return
                assert response.status == 504, await response.text()

    async def _create(self, body: dict[str, Any]) -> None:
        async with self._session.post(self._url, json=body) as response:
            assert response.status == 201, await response.text()

    async def _delete(self, name: str) -> None:
        async with self._session.delete(f"{self._url}/{name}") as response:
            assert response.status == 200, await response.text()

    async def _each(self, call: Callable[[Any], Any], items: Iterable[Any]) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(item: Any) -> None:
            async with slots:
                await call(item)

        async with asyncio.TaskGroup() as tasks:
            for item in items:
                tasks.create_task(one(item))


@pytest.fixture
async def nodes(control_plane: ApiServer) -> AsyncIterator[Nodes]:
    async with control_plane.session() as session:
        found = Nodes(control_plane, session)
        await found.delete_all()
        yield found


@asynccontextmanager
async def edge(data: Path, kubeconfig: Path, **more: object) -> AsyncIterator[Plane]:
    """A plane whose Kubernetes edge watches the cluster `east`."""
    flags: dict[str, object] = {
        "data": data,
        "kubeconfig": str(kubeconfig),
        "source": "east",
        "node_labels": "tier",
        **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
        **more,
    }
    settings = load_settings(flags, None, {})
    async with Plane.start(settings, now_ms=now_ms, rng=random.Random(3)) as plane:
        yield plane


def zones_of(plane: Plane) -> dict[str, str]:
    """The zone of each member of fleet."""
    return {name: member.zone for name, member in plane.states.fleet.members.rows.items() if not member.held}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_burst_of_10_000_nodes_joins_without_one_dropped(
    tmp_path: Path, control_plane: ApiServer, nodes: Nodes
) -> None:
    async with edge(tmp_path / "plane", control_plane.kubeconfig()) as plane:
        made = [node(f"n{i}", f"rack-{i % 200}", f"10.{i >> 16}.{i >> 8 & 255}.{i & 255 or 1}") for i in range(10_000)]
        await nodes.create(*made)
        await until(lambda: len(zones_of(plane)) == 10_000)
        assert zones_of(plane) == {f"east/n{i}": f"rack-{i % 200}" for i in range(10_000)}
        member = plane.states.zone("rack-7").nodes.rows["east/n7"]
        assert member.uid and member.created_ms and member.labels == {"tier": "gpu"}


async def test_moves_deletions_and_what_happened_while_the_plane_was_away(
    tmp_path: Path, control_plane: ApiServer, nodes: Nodes
) -> None:
    kubeconfig = control_plane.kubeconfig()
    await nodes.create(*(node(f"n{i}", "rack-1", f"10.0.0.{i + 1}") for i in range(20)))
    async with edge(tmp_path / "plane", kubeconfig) as plane:
        await until(lambda: len(zones_of(plane)) == 20)
        await nodes.label("n1", "rack-2")
        await until(lambda: zones_of(plane)["east/n1"] == "rack-2")
        await nodes.delete("n2")
        await until(lambda: "east/n2" not in zones_of(plane))
        await nodes.create(node("n2", "rack-1", "10.0.0.99"))
        await until(lambda: "east/n2" in zones_of(plane))
    await nodes.delete("n3")
    await nodes.create(node("n20", "rack-1", "10.0.0.21"))
    async with edge(tmp_path / "plane", kubeconfig) as plane:
        await until(lambda: "east/n20" in zones_of(plane) and "east/n3" not in zones_of(plane))
        assert len(zones_of(plane)) == 20


async def test_an_api_server_that_is_away_stops_nothing_and_is_caught_up_with(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    cluster = own_control_plane
    async with cluster.session() as session, edge(tmp_path / "plane", cluster.kubeconfig()) as plane:
        nodes = Nodes(cluster, session)
        await nodes.create(*(node(f"n{i}", "rack-1", f"10.0.0.{i + 1}") for i in range(5)))
        await until(lambda: len(zones_of(plane)) == 5)
        cluster.kill("kube-apiserver")
        await asyncio.sleep(3)
        assert len(zones_of(plane)) == 5
        await cluster.start()
        await nodes.create(node("n5", "rack-1", "10.0.0.6"))
        await until(lambda: len(zones_of(plane)) == 6)


async def test_an_etcd_restored_from_an_older_backup_withdraws_nothing(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    cluster = own_control_plane
    async with cluster.session() as session, edge(tmp_path / "plane", cluster.kubeconfig()) as plane:
        nodes = Nodes(cluster, session)
        await nodes.create(*(node(f"n{i}", "rack-1", f"10.0.0.{i + 1}") for i in range(3)))
        saved = cluster.save_etcd()
        await cluster.start()
        await nodes.create(*(node(f"n{i}", "rack-1", f"10.0.0.{i + 1}") for i in range(3, 5)))
        async with connect(str(cluster.kubeconfig())) as api:
            await advance(api, "/api/v1/nodes/n4")
        await nodes.create(node("n5", "rack-1", "10.0.0.6"))
        await until(lambda: len(zones_of(plane)) == 6)
        for name in ("kube-apiserver", "etcd"):
            cluster.kill(name)
        cluster.restore_etcd(saved)
        await cluster.start()
        await until(lambda: plane.parts.kubernetes[0].nodes.retained == 3)
        await asyncio.sleep(3)
        assert len(zones_of(plane)) == 6, "a list of a restored API server proves nothing about later nodes"
    async with edge(tmp_path / "plane", cluster.kubeconfig()) as plane:
        await until(lambda: plane.parts.kubernetes[0].nodes.retained == 3)
        assert len(zones_of(plane)) == 6, "an edge that starts after the restore reads it from the log"


async def test_a_zone_whose_last_node_went_away_while_no_edge_ran_is_emptied(
    tmp_path: Path, control_plane: ApiServer, nodes: Nodes
) -> None:
    kubeconfig = control_plane.kubeconfig()
    async with edge(tmp_path / "plane", kubeconfig) as plane:
        await nodes.create(node("e1", "rack-e1", "10.0.9.1"), node("e2", "rack-e2", "10.0.9.2"))
        await until(lambda: {"east/e1", "east/e2"} <= zones_of(plane).keys())
        assert "east/e2" in plane.states.zone("rack-e2").nodes.rows
    await nodes.delete("e2")
    async with edge(tmp_path / "plane", kubeconfig) as plane:
        await until(lambda: "east/e2" not in plane.states.zone("rack-e2").nodes.rows)
        assert "east/e1" in plane.states.zone("rack-e1").nodes.rows


async def test_the_state_of_each_zone_is_shown_by_kubectl(
    tmp_path: Path, control_plane: ApiServer, nodes: Nodes, cluster: Cluster
) -> None:
    await install(cluster.api, definition(DPU_RACK), *map(definition, UPSTREAM_KINDS))
    more = {"kubernetes_cliques": "assign", "driver_namespace": cluster.namespace, "simulate": 4}
    kubeconfig = control_plane.kubeconfig()
    rack = f"{cluster.prefix}-rack"
    await nodes.create(*(node(f"{cluster.prefix}-n{i}", rack, f"10.9.0.{i + 1}") for i in range(3)))
    async with edge(tmp_path / "plane", kubeconfig, kubernetes_status=True, **more) as plane:
        await until(lambda: len(zones_of(plane)) == 3)
        kubectl = control_plane.kubectl
        path = DPU_RACK.path(name=rack)

        async def status() -> dict[str, Any]:
            try:
                found: dict[str, Any] = (await get(cluster.api, path)).get("status", {})
            except ApiError:
                return {}
            return found

        async with asyncio.timeout(PATIENCE_S):
            while (await status()).get("nodes") != 3:
                await asyncio.sleep(0.2)
        found = await status()
        assert found["members"] == [f"east/{cluster.prefix}-n[0-2]"]
        assert len(json.dumps(found)) <= 2_000
        assert rack in await kubectl("get", "rack")
        assert "Conditions" in await kubectl("describe", "dpurack", rack)
        await cluster.api.delete(path, uid=(await get(cluster.api, path))["metadata"]["uid"])
        async with asyncio.timeout(PATIENCE_S):
            while not await status():
                await asyncio.sleep(0.2)
        assert len(zones_of(plane)) == 3, "the deletion of an object removes nothing from the plane"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{plane.addresses['http']}/metrics") as response,
        ):
            scraped = await response.text()
        for metric in CATALOG:
            if metric.name.startswith("dpuplane_kubernetes_"):
                assert f"{metric.name}{{" in scraped, metric.name
