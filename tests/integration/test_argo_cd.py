"""Services in Argo CD's own controllers: a chart of a DPUService in a second API server, changed, and removed again."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivers.kubernetes.client import connect
from projections.resources import kinds
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from tests.support.chart_server import ChartServer, serving_charts
from tests.support.kubernetes import argo_cd, chart_files
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.observing import has_condition, observing
from tests.support.kubernetes.requests import create_namespace, get, install
from tests.support.kubernetes.resource_clusters import ResourceClusters
from tests.support.memory_plane import plane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = {"provisioningController": {"bfbPVCName": "bfb"}, "deploymentMode": "host-trusted"}
PATIENCE_S = 180.0
VERSIONS = ("1.0.0", "2.0.0")
PORT = {"name": "http", "port": 80, "protocol": "TCP"}


class Scene:
    """A source cluster with Argo CD, a DPU cluster, and a repository of charts."""

    def __init__(self, clusters: ResourceClusters, charts: ChartServer) -> None:
        self.clusters, self.charts = clusters, charts

    def service(self, version: str, image: str) -> dict[str, Any]:
        source = {"repoURL": self.charts.repository, "chart": chart_files.NAME, "version": version}
        return {"helmChart": {"source": source, "values": {"image": image}}, "configPorts": {"ports": [PORT]}}

    async def daemon_set(self) -> dict[str, Any] | None:
        """What the chart has made in the DPU cluster."""
        found = await get(self.clusters.dpu_api, f"/apis/apps/v1/namespaces/{self.clusters.namespace}/daemonsets")
        return next(iter(found["items"]), None)

    async def image(self) -> str:
        found = await self.daemon_set()
        return found["spec"]["template"]["spec"]["containers"][0]["image"] if found is not None else ""


@pytest.fixture
async def scene(argo_cd_programs: None, tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        source, dpus = (ControlPlane(tmp_path / name) for name in ("source", "dpus"))
        for server in (source, dpus):
            stack.callback(server.stop)
            await server.start()
        source.start_controllers("garbage-collector-controller")
        dpus.start_controllers("daemonset-controller,garbage-collector-controller")
        api = await stack.enter_async_context(connect(str(source.kubeconfig())))
        dpu_api = await stack.enter_async_context(connect(str(dpus.kubeconfig())))
        await install(api, *map(definition, KINDS), *argo_cd.definitions())
        namespace = f"test-{random.SystemRandom().getrandbits(40):010x}"
        await create_namespace(api, namespace)
        charts, _ = await stack.enter_async_context(serving_charts(tmp_path))
        charts.index = chart_files.index(VERSIONS)
        charts.files = {f"{chart_files.NAME}-{each}.tgz": chart_files.packed(each) for each in VERSIONS}
        await argo_cd.make_settings(api, namespace, charts.repository)
        await api.create(f"/api/v1/namespaces/{namespace}/secrets", _access(dpus))
        await stack.enter_async_context(argo_cd.ArgoCD(tmp_path / "argocd", source.kubeconfig(), namespace))
        made = await stack.enter_async_context(plane())
        clusters = ResourceClusters(made, api, dpu_api, namespace)
        clusters.patience_s = PATIENCE_S
        await clusters.start("p1")
        made.spawn("p1", observing(clusters))
        yield Scene(clusters, charts)


def _access(server: ControlPlane) -> dict[str, Any]:
    """The Secret with the kubeconfig of a DPU cluster, with the authority of its server."""
    content = yaml.safe_load(server.kubeconfig().read_text())
    authority, _ = server.serving_certificate()
    cluster = content["clusters"][0]["cluster"]
    del cluster["insecure-skip-tls-verify"]
    cluster["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    text = yaml.safe_dump(content).encode()
    return {"metadata": {"name": "access"}, "data": {"admin.conf": base64.b64encode(text).decode()}}


async def test_a_service_is_synced_changed_and_removed(scene: Scene) -> None:
    made = scene.clusters
    await made.create(kinds.DPF_OPERATOR_CONFIG, "config", CONFIG)
    await made.create(kinds.DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 10, "kubeconfig": "access"})
    await made.observe(kinds.DPU_CLUSTER, "dpus", {"ready": True, "phase": "Ready"})
    await made.create(kinds.DPU_SERVICE, "svc", scene.service("1.0.0", "registry.example/a:1"))
    await made.until(lambda: has_condition(made, kinds.DPU_SERVICE, "svc", "Ready"), "the service is ready")
    found = await scene.daemon_set()
    assert found is not None
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert "svc.dpu.nvidia.com/service" in labels, "the values of the plane reach the chart"
    status = (await made.object(kinds.DPU_SERVICE, "svc") or {})["status"]
    assert status["configPorts"]["dpus"][0]["nodePort"] > 0
    sliced = await made.object(kinds.ENDPOINT_SLICE, "svc") or {}
    chart_made = await made.object(kinds.SERVICE, "dpus-svc", in_dpu_cluster=True) or {}
    assert sliced["ports"][0]["port"] == chart_made["spec"]["ports"][0]["nodePort"]

    await made.edit(kinds.DPU_SERVICE, "svc", {"spec": scene.service("1.0.0", "registry.example/a:2")})

    async def has_image(image: str) -> bool:
        return await scene.image() == image

    await made.until(lambda: has_image("registry.example/a:2"), "the new values have arrived")
    await made.edit(kinds.DPU_SERVICE, "svc", {"spec": scene.service("2.0.0", "registry.example/a:2")})

    async def is_at_2() -> bool:
        application = await made.object(kinds.APPLICATION, "dpus-svc") or {}
        return bool((application.get("status") or {}).get("sync", {}).get("revision") == "2.0.0")

    await made.until(is_at_2, "the new version has arrived")
    await made.until(lambda: has_condition(made, kinds.DPU_SERVICE, "svc", "Ready"), "the service is ready again")

    await made.edit(kinds.DPU_SERVICE, "svc", {"spec": scene.service("3.0.0", "registry.example/a:2")})

    async def names_the_version() -> bool:
        found = await made.object(kinds.DPU_SERVICE, "svc") or {}
        return "3.0.0" in found["status"]["conditions"][0]["message"]

    await made.until(names_the_version, "the condition says that the version does not exist")
    await made.delete(kinds.DPU_SERVICE, "svc")

    async def is_gone() -> bool:
        left = [await made.names(kind) for kind in (kinds.APPLICATION, kinds.ENDPOINT_SLICE, kinds.DPU_SERVICE)]
        return not any(left) and await made.object(kinds.SERVICE, "svc") is None

    await made.until(is_gone, "the service is gone")
    assert await scene.daemon_set() is None, "Argo CD has removed what the chart had made"
    assert await made.object(kinds.SERVICE, "dpus-svc", in_dpu_cluster=True) is None
