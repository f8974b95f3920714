"""A DPU cluster and a service from their objects to Ready, and away again, with real API servers.

Argo CD and Kamaji are played by an actor that fails at random. With THIRD_PARTY_CRDS their real definitions hold.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
import yaml

from drivers.kubernetes.client import connect
from projections.resources import kinds
from schemas.kubernetes.objects import Custom
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.dpf.names import IMAGE_PULL_SECRET, SERVICE_NAME, SERVICE_NAMESPACE
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.observing import has_condition, observing
from tests.support.kubernetes.peers import Peers, definitions
from tests.support.kubernetes.requests import create_namespace, install
from tests.support.kubernetes.resource_clusters import ResourceClusters
from tests.support.kubernetes.two_clusters import control_planes
from tests.support.memory_plane import plane

CONFIG = {
    "provisioningController": {"bfbPVCName": "bfb"},
    "imagePullSecrets": ["pull"],
    "deploymentMode": "host-trusted",
}
KEEPALIVED = {"vip": "10.0.0.9", "virtualRouterID": 7, "interface": "eth0"}
CLUSTER = {"type": "kamaji", "maxNodes": 10, "clusterEndpoint": {"keepalived": KEEPALIVED}}
CHART = {"source": {"repoURL": "oci://registry.example.org/charts", "chart": "hbn", "version": "1.0.0"}}
SERVICE = {"helmChart": {**CHART, "values": {"image": "a"}}, "serviceID": "hbn"}
PULL = base64.b64encode(b"{}").decode()
_custom = msgspec.json.Decoder(Custom)


@pytest.fixture(scope="module")
def servers(kubernetes_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ControlPlane]]:
    """The API servers of a source cluster and of a DPU cluster."""
    with control_planes(tmp_path_factory.mktemp("clusters")) as found:
        with asyncio.Runner() as runner:
            runner.run(_install(found[0]))
        yield found


async def _install(server: ControlPlane) -> None:
    async with connect(str(server.kubeconfig())) as api:
        await install(api, *map(definition, KINDS), *definitions())


@pytest.fixture
async def clusters(servers: list[ControlPlane]) -> AsyncIterator[ResourceClusters]:
    source, dpus = servers
    async with connect(str(source.kubeconfig())) as api, connect(str(dpus.kubeconfig())) as dpu_api:
        namespace = f"test-{random.SystemRandom().getrandbits(40):010x}"
        await create_namespace(api, namespace)
        async with plane() as made:
            found = ResourceClusters(made, api, dpu_api, namespace)
            await found.start("p1")
            peers = Peers(api, namespace, dpus.kubeconfig().read_bytes(), rng=random.Random(namespace))
            made.spawn("p1", peers.run())
            made.spawn("p1", observing(found))
            yield found
        await found.clear()


async def test_a_cluster_and_a_service_become_ready_and_go(clusters: ResourceClusters) -> None:
    made = clusters
    secret = {
        "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": PULL},
    }
    await made.api.create(f"/api/v1/namespaces/{made.namespace}/secrets", secret)
    await made.create(kinds.DPF_OPERATOR_CONFIG, "config", CONFIG)
    await made.create(kinds.DPU_CLUSTER, "dpus", CLUSTER)
    await made.create(kinds.DPU_SERVICE, "svc", SERVICE)

    tenant = await made.until(lambda: made.object(kinds.TENANT_CONTROL_PLANE, "dpus"), "the control plane")
    service = await made.object(kinds.SERVICE, "dpus")
    assert service is not None
    port = tenant["spec"]["networkProfile"]["port"]
    assert port == service["spec"]["ports"][0]["nodePort"]
    await made.until(lambda: has_condition(made, kinds.DPU_CLUSTER, "dpus", "Created"), "Created")
    await made.until(lambda: made.object(kinds.DAEMON_SET, "dpus-keepalived"), "keepalived")

    cluster_secret = await made.until(lambda: made.object(kinds.SECRET, f"{made.namespace}-dpus"), "the cluster Secret")
    data = {key: base64.b64decode(value).decode() for key, value in cluster_secret["data"].items()}
    kubeconfig = base64.b64decode(
        (await made.object(kinds.SECRET, "dpus-admin-kubeconfig") or {})["data"]["admin.conf"]
    )
    assert data["server"] == yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["server"]
    assert data["name"] == "dpus"
    assert cluster_secret["metadata"]["labels"]["argocd.argoproj.io/secret-type"] == "cluster"

    await made.observe(kinds.DPU_CLUSTER, "dpus", {"ready": True, "phase": "Ready"})
    copy = await made.until(lambda: made.object(kinds.SECRET, "pull", in_dpu_cluster=True), "the pull secret")
    assert (copy["type"], copy["data"]) == (secret["type"], secret["data"])
    await made.until(lambda: has_condition(made, kinds.DPU_SERVICE, "svc", "Ready"), "the service is ready")
    await made.until(lambda: has_condition(made, kinds.DPF_OPERATOR_CONFIG, "config", "Ready"), "the operator is ready")
    application = await made.object(kinds.APPLICATION, "dpus-svc")
    assert application is not None
    assert application["spec"]["source"]["helm"]["valuesObject"]["image"] == "a"
    taken_over = await made.object(kinds.SERVICE, "dpus")
    assert taken_over is not None
    assert [each["port"] for each in taken_over["spec"]["ports"]] == [port], "Kamaji's Service is left alone"

    newer = {"spec": {"helmChart": {"source": {"version": "2.0.0"}}}}
    await made.edit(kinds.DPU_SERVICE, "svc", newer)

    async def is_at_2() -> bool:
        found = await made.object(kinds.APPLICATION, "dpus-svc") or {}
        return bool((found.get("status") or {}).get("sync", {}).get("revision") == "2.0.0")

    await made.until(is_at_2, "the newer version is deployed")
    await made.delete(kinds.DPU_SERVICE, "svc")

    async def is_gone() -> bool:
        names = await made.names(kinds.APPLICATION)
        return not names and await made.object(kinds.DPU_SERVICE, "svc") is None

    await made.until(is_gone, "the service is gone")
    assert await made.object(kinds.TENANT_CONTROL_PLANE, "dpus") is not None


async def test_hosts_reach_the_config_ports_of_a_service(clusters: ResourceClusters) -> None:
    """What the chart makes in the DPU cluster is played: its Service, and a node that runs its pod. A labelled pull
    secret keeps no service from going."""
    made = clusters
    secret = {"metadata": {"name": "mine", "labels": {IMAGE_PULL_SECRET: ""}}, "data": {"key": PULL}}
    await made.api.create(f"/api/v1/namespaces/{made.namespace}/secrets", secret)
    await made.create(kinds.DPF_OPERATOR_CONFIG, "config", CONFIG)
    await made.create(kinds.DPU_CLUSTER, "dpus", CLUSTER)
    port = {"name": "http", "port": 80, "protocol": "TCP"}
    await made.create(kinds.DPU_SERVICE, "svc", SERVICE | {"configPorts": {"ports": [port]}})
    service = await made.until(lambda: made.object(kinds.SERVICE, "svc"), "the Service for hosts")
    assert service["spec"]["internalTrafficPolicy"] == "Local"
    assert service["metadata"]["ownerReferences"][0]["name"] == "svc"
    await made.until(
        lambda: has_condition(made, kinds.DPU_SERVICE, "svc", "ConfigPortsReconciled", "False"), "no chart has ports"
    )

    await made.until(lambda: has_condition(made, kinds.DPU_CLUSTER, "dpus", "Created"), "the DPU cluster")
    await create_namespace(made.dpu_api, made.namespace)
    chart_made = {
        "metadata": {"name": "chart", "labels": _labels_of(made)},
        "spec": {"type": "NodePort", "selector": {"app": "hbn"}, "ports": [port]},
    }
    path = f"/api/v1/namespaces/{made.namespace}/services"
    given = json.loads(await made.dpu_api.create(path, chart_made))
    name = f"dpu-{made.namespace}"
    node = {"metadata": {"name": name, "labels": {"provisioning.dpu.nvidia.com/dpunode-name": "worker-1"}}}
    uid = json.loads(await made.dpu_api.create("/api/v1/nodes", node))["metadata"]["uid"]
    status = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}}
    await made.dpu_api.patch(f"/api/v1/nodes/{name}/status", status, "merge")
    try:
        await made.until(lambda: _endpoint(made, "svc", "10.0.0.7"), "the endpoint of the DPU")
        found = await made.object(kinds.ENDPOINT_SLICE, "svc") or {}
        assert found["ports"][0]["port"] == given["spec"]["ports"][0]["nodePort"]
        assert found["endpoints"][0]["nodeName"] == "worker-1"
        await made.until(
            lambda: has_condition(made, kinds.DPU_SERVICE, "svc", "ConfigPortsReconciled"), "the ports are reached"
        )
        status = (await made.object(kinds.DPU_SERVICE, "svc") or {})["status"]
        assert status["configPorts"] == {"dpus": [port | {"nodePort": service["spec"]["ports"][0]["nodePort"]}]}
        await made.edit(kinds.DPU_SERVICE, "svc", {"spec": {"helmChart": {"values": {"image": "b"}}}})

        async def has_new_values() -> bool:
            application = await made.object(kinds.APPLICATION, "dpus-svc") or {}
            helm = application.get("spec", {}).get("source", {}).get("helm", {})
            return bool(helm.get("valuesObject", {}).get("image") == "b")

        await made.until(has_new_values, "a change of the service is written")
        await made.until(lambda: made.object(kinds.SECRET, "mine", in_dpu_cluster=True), "the copy of the pull secret")
        for kind, before in ((kinds.SERVICE, service), (kinds.ENDPOINT_SLICE, found)):
            after = await made.object(kind, "svc") or {}
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], kind
    finally:
        await made.dpu_api.delete(f"/api/v1/nodes/{name}", uid=uid)
    await made.until(lambda: _endpoint(made, "svc", None), "no DPU is left")
    await made.delete(kinds.DPU_SERVICE, "svc")

    async def is_gone() -> bool:
        left = [await made.names(kind) for kind in (kinds.APPLICATION, kinds.ENDPOINT_SLICE, kinds.DPU_SERVICE)]
        return not any(left) and await made.object(kinds.SERVICE, "svc") is None

    await made.until(is_gone, "the service and its ports are gone")


def _labels_of(made: ResourceClusters) -> dict[str, str]:
    """The labels that the chart gets as a value."""
    return {SERVICE_NAME: "svc", SERVICE_NAMESPACE: made.namespace}


async def _endpoint(made: ResourceClusters, name: str, address: str | None) -> bool:
    found = await made.object(kinds.ENDPOINT_SLICE, name) or {}
    present = [each["addresses"] for each in found.get("endpoints") or ()]
    return bool(found) and present == ([[address]] if address else [])
