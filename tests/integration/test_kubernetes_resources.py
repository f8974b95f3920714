"""Objects of DPF's kinds at a real API server become objects of the log; a second server is a DPU cluster."""

from __future__ import annotations

import asyncio
import base64
import random
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.kubernetes.resource_edge import key_kind
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from projections.resources.clusters import cluster_source
from projections.resources.state import ObjectId
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.dpf.cluster import DPU_CLUSTER
from schemas.resources.dpf.device import DPU_DEVICE
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.flavor import DPU_FLAVOR
from schemas.resources.dpf.images import BFB_KIND
from schemas.resources.dpf.names import KUBECONFIG_KEY
from schemas.resources.dpf.node import DPU_NODE
from schemas.resources.kinds import Kind
from tests.support.dpf_manifests import CURRENT, manifests
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create, create_namespace, get, install
from tests.support.served import now_ms

SOURCE = "east"
NAMESPACE = "dpf-operator-system"
PATIENCE_S = 90.0
QUIET_S = 3.0


class Site:
    """A source cluster with DPF's kinds, and planes that watch it."""

    def __init__(self, cluster: ControlPlane, api: KubernetesApi, folder: Path) -> None:
        self.cluster = cluster
        self.api = api
        self.folder = folder

    async def apply(self, kind: Kind, name: str, spec: Mapping[str, Any], **about: Any) -> dict[str, Any]:
        """Create an object."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, **about}, "spec": spec}
        return await create(self.api, kind.path(NAMESPACE), body)

    async def change(self, kind: Kind, name: str, patch: Mapping[str, Any]) -> None:
        await self.api.patch(kind.path(NAMESPACE, name), patch, "merge")

    async def delete(self, kind: Kind, name: str) -> None:
        path = kind.path(NAMESPACE, name)
        await self.api.delete(path, uid=(await get(self.api, path))["metadata"]["uid"])

    @asynccontextmanager
    async def plane(self, data: str = "plane") -> AsyncIterator[Watching]:
        flags: dict[str, object] = {
            "data": self.folder / data,
            "kubeconfig": str(self.cluster.kubeconfig()),
            "source": SOURCE,
            "kubernetes_resources": True,
            **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
        }
        async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=random.Random(3)) as plane:
            yield Watching(plane)


class Watching:
    """A plane, and what its log has of the source cluster."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane

    @property
    def state(self) -> Any:
        return self.plane.states.resources(SOURCE)

    def row(self, kind: Kind, name: str) -> Any:
        return self.state.objects.rows.get(resource_key(kind, name))

    def names(self) -> set[str]:
        return {key.rsplit("/", 1)[1] for key in self.state.objects.rows}

    def observation(self, key: str) -> dict[str, Any]:
        row = self.state.observed.rows.get(key)
        found: dict[str, Any] = yaml.safe_load(row.observation) if row is not None else {}
        return found

    @property
    def stated(self) -> int:
        """Number of records about objects of users that this process has appended."""
        return int(self.edges.resources.differences.records)

    @property
    def reported(self) -> int:
        """Number of records about objects that others own."""
        return int(self.edges.observations.differences.records)

    @property
    def edges(self) -> Any:
        (edge,) = self.plane.parts.kubernetes
        return edge.resources

    async def until(self, holds: Any, timeout_s: float = PATIENCE_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.05)

    async def quiet(self) -> None:
        """Wait until nothing is left to write or to state for three seconds: the plane also writes to objects, which
        changes them."""
        before = -1
        async with asyncio.timeout(PATIENCE_S):
            while before != self.stated or self.unwritten:
                before = self.stated
                await asyncio.sleep(QUIET_S)
                await self.settled()

    @property
    def unwritten(self) -> int:
        """Number of objects that the plane writes or compares soon. An object that the server has refused waits."""
        soon_s = asyncio.get_running_loop().time() + QUIET_S
        writers = [cluster.writer for cluster in self.edges.driver.clusters.values()]
        return sum(len(each._busy) + sum(due_s <= soon_s for due_s in each._due_s.values()) for each in writers)

    async def settled(self) -> None:
        """Wait until every kind is listed and compared."""
        await self.until(lambda: self.edges.kinds is not None and self.edges.kinds.watches)
        await self.until(lambda: all(watch.is_current for watch in self.edges.watches.values()))
        await self.until(lambda: self.edges.resources.differences.is_settled)
        await asyncio.sleep(0.3)


def resource_key(kind: Kind, name: str) -> str:
    return ObjectId(SOURCE, key_kind(kind), NAMESPACE, name).key


def kubeconfig_secret(text: str, name: str = "dpu-kubeconfig") -> dict[str, Any]:
    """A Secret with this kubeconfig."""
    data = {KUBECONFIG_KEY: base64.b64encode(text.encode()).decode()}
    return {"metadata": {"name": name}, "data": data}


SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture
async def site(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with connect(str(own_control_plane.kubeconfig())) as api:
        await create_namespace(api, NAMESPACE)
        yield Site(own_control_plane, api, tmp_path)


async def install_ours(api: KubernetesApi) -> None:
    """Install our definitions of DPF's kinds."""
    await install(api, *map(definition, KINDS))


async def test_every_kind_is_stated_and_a_restart_restates_nothing(site: Site) -> None:
    await install_ours(site.api)
    given = {(each.kind.name, each.manifest["metadata"]["name"]): each for each in manifests(CURRENT)}
    stated = {}
    for each in given.values():
        namespace = NAMESPACE if each.kind.is_namespaced else ""
        body = {**each.manifest, "metadata": {**each.manifest["metadata"], "namespace": namespace}}
        try:
            created = await create(site.api, each.kind.path(namespace), body)
        except ApiError as error:
            assert error.status in (409, 422), error
            continue
        stated[resource_key(each.kind, created["metadata"]["name"])] = created["metadata"]["uid"]
    async with site.plane() as watching:
        await watching.settled()
        await watching.until(lambda: len(watching.state.objects.rows) >= 20)
        uids = {key: row.uid for key, row in watching.state.objects.rows.items()}
        assert uids == {
            key: uid for key, uid in stated.items() if "ServiceChainSet" not in key and "InterfaceSet" not in key
        }
        await watching.quiet()
    async with site.plane() as watching:
        await watching.settled()
        assert watching.stated == 0


async def test_order_of_arrival_and_finalizers(site: Site) -> None:
    """Objects are stated in any order, before their definitions are installed, and while finalizers hold them."""
    async with site.plane() as watching:
        await watching.until(lambda: watching.edges.kinds is not None and watching.edges.kinds.searches > 0)
        assert len(watching.edges.kinds.missing) > 20
    await install_ours(site.api)
    async with site.plane() as watching:
        await watching.settled()
        template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
        await site.apply(DPU_SET, "set", {"dpuTemplate": template}, finalizers=["example.com/hold"])
        await site.apply(BFB_KIND, "image", {"url": "http://example.com/a.bfb"})
        await watching.until(lambda: watching.names() == {"set", "image"})
        await site.change(DPU_SET, "set", {"metadata": {"labels": {"tier": "one"}}})
        await watching.until(lambda: watching.row(DPU_SET, "set").labels == {"tier": "one"})
        generation = watching.row(DPU_SET, "set").generation
        await site.change(DPU_SET, "set", {"spec": {"strategy": {"type": "OnDelete"}}})
        await watching.until(lambda: watching.row(DPU_SET, "set").generation == generation + 1)
        await site.delete(DPU_SET, "set")
        await watching.until(lambda: bool(watching.row(DPU_SET, "set").deleted_ms))
        await site.change(DPU_SET, "set", {"metadata": {"finalizers": []}})
        await watching.until(lambda: watching.names() == {"image"})
        await site.apply(DPU_SET, "set", {"dpuTemplate": template})
        await watching.until(lambda: watching.names() == {"set", "image"})
        assert not watching.row(DPU_SET, "set").deleted_ms


async def test_the_deletion_of_a_dpu_is_in_the_log_before_its_object_is_made_again(site: Site) -> None:
    await install_ours(site.api)
    await site.apply(BFB_KIND, "image", {"url": "http://127.0.0.1:9/a.bfb"})
    await site.apply(DPU_FLAVOR, "flavor", {})
    await site.apply(DPU_NODE, "h1", {"dpus": [{"name": "d1"}]})
    await site.apply(DPU_DEVICE, "d1", {"serialNumber": "s1"})
    template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
    await site.apply(DPU_SET, "set", {"dpuTemplate": template, "dpuNodeSelector": {}})
    key = resource_key(DPU_KIND, "h1-d1")
    async with site.plane() as watching:
        await watching.until(lambda: key in watching.state.dpu_rollouts.rows)
        first = await _uid(site, "h1-d1", "")
        await site.delete(DPU_KIND, "h1-d1")
        await _uid(site, "h1-d1", first)
        assert watching.state.dpu_rollouts.rows[key].deleted_uid == first
        await watching.quiet()
        stated = watching.stated
    async with site.plane() as watching:
        await watching.settled()
        assert watching.stated == 0 < stated, "a restart states no deletion again"


async def _uid(site: Site, name: str, other: str) -> str:
    """Wait until a DPU has an object with another uid. Returns the uid."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = await get(site.api, DPU_KIND.path(NAMESPACE, name))
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                if found["metadata"]["uid"] != other:
                    return str(found["metadata"]["uid"])
            await asyncio.sleep(0.05)


async def test_what_changes_while_no_plane_runs_is_caught_up(site: Site) -> None:
    await install_ours(site.api)
    for name in ("gone", "changed", "same"):
        await site.apply(BFB_KIND, name, {"url": f"http://example.com/{name}.bfb"})
    async with site.plane() as watching:
        await watching.settled()
        await watching.until(lambda: watching.names() == {"gone", "changed", "same"})
    await site.delete(BFB_KIND, "gone")
    await site.change(BFB_KIND, "changed", {"metadata": {"annotations": {"note": "1"}}})
    await site.apply(BFB_KIND, "new", {"url": "http://example.com/new.bfb"})
    async with site.plane() as watching:
        await watching.until(lambda: watching.names() == {"changed", "same", "new"})
        await watching.until(lambda: watching.row(BFB_KIND, "changed").annotations == {"note": "1"})
        assert watching.stated == 2


@pytest.mark.slow
async def test_an_api_server_that_restarts_loses_no_change(site: Site) -> None:
    await install_ours(site.api)
    await site.apply(BFB_KIND, "first", {"url": "http://example.com/a.bfb"})
    async with site.plane() as watching:
        await watching.settled()
        site.cluster.kill("kube-apiserver")
        await site.cluster.start()
        await site.apply(BFB_KIND, "second", {"url": "http://example.com/b.bfb"})
        await watching.until(lambda: watching.names() == {"first", "second"}, 45.0)


@pytest.mark.slow
async def test_after_a_restore_of_etcd_objects_are_as_in_the_backup(site: Site) -> None:
    await install_ours(site.api)
    await site.apply(BFB_KIND, "old", {"url": "http://example.com/a.bfb"})
    saved = site.cluster.save_etcd()
    await site.cluster.start()
    async with site.plane() as watching:
        await watching.settled()
        await site.change(BFB_KIND, "old", {"spec": {"fileName": "later.bfb"}, "metadata": {"labels": {"a": "b"}}})
        await site.apply(BFB_KIND, "later", {"url": "http://example.com/b.bfb"})
        await watching.until(lambda: watching.names() == {"old", "later"})
        await watching.until(lambda: watching.row(BFB_KIND, "old").labels == {"a": "b"})
        for name in ("kube-apiserver", "etcd"):
            site.cluster.kill(name)
        site.cluster.restore_etcd(saved)
        await site.cluster.start()
        await watching.until(lambda: watching.row(BFB_KIND, "old").labels == {}, 60.0)
        assert watching.names() == {"old", "later"}


async def test_a_second_cluster_of_dpus_is_observed(site: Site, control_plane: ApiServer) -> None:
    """A DPUCluster is connected by its Secret, reports its phase, and its Nodes are observed."""
    await install_ours(site.api)
    key = resource_key(DPU_CLUSTER, "dpus")
    node_name = f"dpu-{random.getrandbits(40):x}"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connect(str(control_plane.kubeconfig())))
        watching = await stack.enter_async_context(site.plane())
        await watching.settled()
        await site.apply(DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 10, "kubeconfig": "dpu-kubeconfig"})
        await watching.until(lambda: watching.observation(key).get("phase") == "Pending")
        assert "dpu-kubeconfig cannot be used: it does not exist" in watching.observation(key)["message"].replace(
            "'", ""
        )
        text = control_plane.kubeconfig().read_text()
        await create(site.api, SECRETS, kubeconfig_secret(text))
        await watching.until(lambda: watching.observation(key).get("phase") == "Ready")
        assert watching.observation(key)["version"].startswith("v1.")
        node = {"metadata": {"name": node_name, "labels": {"example.com/made-by": "tests"}}}
        created = await create(cluster, "/api/v1/nodes", node)
        node_key = ObjectId(cluster_source(key), "Node.core", "", node_name).key
        await watching.until(lambda: bool(watching.observation(node_key)))
        assert watching.observation(node_key)["ready"] is False
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        status = {"status": {"conditions": [condition], "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}]}}
        await cluster.patch(f"/api/v1/nodes/{node_name}/status", status, "merge")
        await watching.until(lambda: watching.observation(node_key)["ready"] is True)
        assert watching.observation(node_key)["addresses"] == [{"type": "InternalIP", "address": "10.1.2.3"}]
        reported = watching.reported
        condition["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
        await cluster.patch(f"/api/v1/nodes/{node_name}/status", {"status": {"conditions": [condition]}}, "merge")
        await cluster.delete(f"/api/v1/nodes/{node_name}", uid=created["metadata"]["uid"])
        await watching.until(lambda: not watching.observation(node_key))
        assert watching.reported <= reported + 2  # the Node is gone, and its cluster counts one less
        assert watching.edges.connections.api(cluster_source(key)) is not None
        await site.delete(DPU_CLUSTER, "dpus")
        await watching.until(lambda: watching.edges.connections.sources() == (SOURCE,))
        prefix = cluster_source(key)
        await watching.until(lambda: not any(each.startswith(prefix) for each in watching.state.observed.rows))
        await watching.until(lambda: not watching.observation(key))


@pytest.mark.slow
async def test_a_rotated_kubeconfig_needs_no_restart(site: Site, tmp_path: Path) -> None:
    """A token that the DPU cluster no longer knows is replaced by the one in the Secret."""
    await install_ours(site.api)
    key = resource_key(DPU_CLUSTER, "dpus")
    other = ControlPlane(tmp_path / "dpu-cluster")
    try:
        await other.start()
        await create(site.api, SECRETS, kubeconfig_secret(other.kubeconfig().read_text()))
        await site.apply(DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 10, "kubeconfig": "dpu-kubeconfig"})
        async with site.plane() as watching:
            await watching.until(lambda: watching.observation(key).get("phase") == "Ready")
            other.tokens["admin"] = secrets.token_hex(16)
            new = kubeconfig_secret(other.kubeconfig().read_text())
            await site.api.patch(f"{SECRETS}/dpu-kubeconfig", {"data": new["data"]}, "merge")
            other.kill("kube-apiserver")
            await other.start()
            async with connect(str(other.kubeconfig())) as api:
                await create(api, "/api/v1/nodes", {"metadata": {"name": "dpu-1"}})
            node = ObjectId(cluster_source(key), "Node.core", "", "dpu-1").key
            await watching.until(lambda: bool(watching.observation(node)), 60.0)
            await watching.until(lambda: watching.observation(key)["phase"] == "Ready")
            await watching.until(lambda: watching.observation(key).get("nodes") == 1)
            other.stop()
            await watching.until(lambda: watching.observation(key)["phase"] == "NotReady", 60.0)
            assert watching.observation(node)  # what was observed stays until the cluster says otherwise
    finally:
        other.stop()
