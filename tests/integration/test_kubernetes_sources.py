"""Two source clusters of one process: their Nodes, their statuses, and the loss of one API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.operations.doctor.kubernetes import check_sources
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from eventstore.errors import FatalError
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.integration.test_kubernetes_nodes import PATIENCE_S, Nodes, edge, node, until, zones_of
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import get, install
from tests.support.served import now_ms


class Source:
    """A source cluster as a test sees it."""

    def __init__(self, cluster: ApiServer, api: KubernetesApi, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.api = api
        self.nodes = Nodes(cluster, session)

    async def until_rack(self, zone: str, members: list[str]) -> None:
        """Wait until the status of a zone's object lists these members."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._members(zone) != members:
                await asyncio.sleep(0.1)

    async def _members(self, zone: str) -> Any:
        try:
            return (await get(self.api, DPU_RACK.path(name=zone))).get("status", {}).get("members")
        except ApiError:
            return None


async def served(api: KubernetesApi) -> dict[str, Any]:
    """The racks, once the API server serves the kind that was installed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ApiError):
                return await get(api, DPU_RACK.path())
            await asyncio.sleep(0.1)


@asynccontextmanager
async def source(cluster: ApiServer) -> AsyncIterator[Source]:
    async with connect(str(cluster.kubeconfig())) as api, cluster.session() as session:
        await install(api, definition(DPU_RACK))
        for rack in (await served(api))["items"]:  # a new log must not write below an old log's positions
            await api.delete(DPU_RACK.path(name=rack["metadata"]["name"]), uid=rack["metadata"]["uid"])
        yield Source(cluster, api, session)


@pytest.fixture
async def sources(control_plane: ApiServer, own_control_plane: ControlPlane) -> AsyncIterator[tuple[Source, Source]]:
    """Two clusters; the second one is `own_control_plane`, which a test may stop."""
    async with AsyncExitStack() as stack:
        east, west = [await stack.enter_async_context(source(each)) for each in (control_plane, own_control_plane)]
        await east.nodes.delete_all()
        yield east, west


def given(east: Source, west: Source) -> str:
    return f"east={east.cluster.kubeconfig()},west={west.cluster.kubeconfig()}"


async def metrics(plane: Plane) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{plane.addresses['http']}/metrics") as response:
        return (await response.text()).splitlines()


async def status(plane: Plane) -> str:
    """What `dpuplane status` prints."""
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["status", "--server", plane.addresses["api"]])
    assert not ran.exit_code, ran.output
    return str(ran.output)


async def test_nodes_of_one_name_in_two_clusters_are_two_nodes_and_both_clusters_show_the_zone(
    tmp_path: Path, sources: tuple[Source, Source]
) -> None:
    east, west = sources
    await east.nodes.create(node("n1", "rack-1", "10.0.0.1"), node("n2", "rack-1", "10.0.0.2"))
    await west.nodes.create(node("n1", "rack-1", "10.1.0.1"))
    both = given(east, west)
    async with edge(tmp_path / "plane", Path(both), kubernetes_status=True) as plane:
        await until(lambda: set(zones_of(plane)) == {"east/n1", "east/n2", "west/n1"})
        for each in sources:
            await each.until_rack("rack-1", ["east/n[1-2]", "west/n1"])
        await east.nodes.delete("n1")
        await until(lambda: set(zones_of(plane)) == {"east/n2", "west/n1"})
        for each in sources:
            await each.until_rack("rack-1", ["east/n2", "west/n1"])
        scraped = await metrics(plane)
        for name in ("east", "west"):
            assert f'dpuplane_kubernetes_nodes{{source="{name}"}} 1.0' in scraped
        assert scraped.count("# TYPE dpuplane_kubernetes_nodes gauge") == 1


async def test_a_cluster_whose_api_server_is_away_stops_nothing_of_the_other_one(
    tmp_path: Path, sources: tuple[Source, Source], own_control_plane: ControlPlane
) -> None:
    east, west = sources
    await east.nodes.create(node("n1", "rack-1", "10.0.0.1"))
    await west.nodes.create(node("n1", "rack-1", "10.1.0.1"), node("n2", "rack-2", "10.1.0.2"))
    both = given(east, west)
    async with edge(tmp_path / "plane", Path(both), kubernetes_status=True) as plane:
        await until(lambda: len(zones_of(plane)) == 3)
        await west.until_rack("rack-1", ["east/n1", "west/n1"])
        own_control_plane.kill("kube-apiserver")
        await east.nodes.create(node("n2", "rack-1", "10.0.0.2"))
        await until(lambda: "east/n2" in zones_of(plane))
        await east.until_rack("rack-1", ["east/n[1-2]", "west/n1"])
        await east.nodes.delete("n1")
        await until(lambda: set(zones_of(plane)) == {"east/n2", "west/n1", "west/n2"})
        await east.until_rack("rack-1", ["east/n2", "west/n1"])
        async with asyncio.timeout(PATIENCE_S):
            while 'dpuplane_kubernetes_watch_current{resource="nodes",source="west"} 0.0' not in await metrics(plane):
                await asyncio.sleep(0.2)
        async with asyncio.timeout(PATIENCE_S):
            while "wrong: source west not watched\n" not in (said := await status(plane)):
                await asyncio.sleep(0.2)
        assert f"watched by {plane.name}; 1 Nodes" in said
        assert f"not watched by {plane.name}; no connection to 127.0.0.1:" in said
        assert "; 2 Nodes\n" in said
        await own_control_plane.start()
        await west.nodes.delete("n2")
        await until(lambda: set(zones_of(plane)) == {"east/n2", "west/n1"})
        await west.until_rack("rack-1", ["east/n2", "west/n1"])
    own_control_plane.kill("kube-apiserver")
    await east.nodes.create(node("n3", "rack-1", "10.0.0.3"))
    async with edge(tmp_path / "plane", Path(both), kubernetes_status=True) as plane:
        await until(lambda: "east/n3" in zones_of(plane))
        await east.until_rack("rack-1", ["east/n[2-3]", "west/n1"])


async def test_a_missing_file_is_named_before_anything_is_created(tmp_path: Path, control_plane: ApiServer) -> None:
    flags = {"data": tmp_path / "plane", "kubeconfig": f"{control_plane.kubeconfig()},west={tmp_path}/none"}
    settings = load_settings(flags, None, {})
    with pytest.raises(FatalError, match=r"^kubeconfig: '.*/none' of source 'west' cannot be read: No such file"):
        async with Plane.start(settings, now_ms=now_ms, rng=random.Random(3)):
            pass
    assert not (tmp_path / "plane").exists()


async def test_doctor_checks_each_source_cluster(
    tmp_path: Path, sources: tuple[Source, Source], own_control_plane: ControlPlane
) -> None:
    east, west = sources
    flags: dict[str, object] = {"data": tmp_path / "plane", "kubeconfig": f"{given(east, west)},none={tmp_path}/none"}
    found = {each.check: each for each in await check_sources(load_settings(flags, None, {}))}
    assert {name: each.ok for name, each in found.items()} == {
        "source east": True,
        "source west": True,
        "source none": False,
    }
    assert "cannot be used" in found["source none"].found
    (tmp_path / "broken").write_text("clusters: [")
    (broken,) = await check_sources(load_settings(flags | {"kubeconfig": f"broken={tmp_path}/broken"}, None, {}))
    assert "/broken' cannot be used: line 1 is not valid YAML: expected the node content" in broken.found
    flags |= {"kubeconfig": f"west={west.cluster.kubeconfig()}", "kubernetes_status": True}
    (undefined,) = await check_sources(load_settings(flags, None, {}))
    assert undefined.found.startswith("rulepolicies not listed"), "only racks are defined there"
    assert undefined.advice.startswith("kubectl apply -f deploy/kubernetes/crds")
    own_control_plane.kill("kube-apiserver")
    (away,) = await check_sources(load_settings(flags, None, {}))
    assert away.advice.startswith("start the API server or repair the network")
