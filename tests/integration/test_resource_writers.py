"""The plane writes what follows from objects into a source cluster and a DPU cluster, with real API servers."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivers.kubernetes.client import connect
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.manifests import OWNER
from projections.resources import kinds
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS, dpu, dpu_set, images
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import DPF_CRDS
from tests.support.kubernetes.requests import create_namespace, get, install
from tests.support.kubernetes.resource_clusters import SOURCE, ResourceClusters
from tests.support.kubernetes.two_clusters import control_planes
from tests.support.kubernetes.watched import Watched
from tests.support.memory_plane import plane

IMAGE = {"url": "https://images.example.org/jammy.bfb"}
FLAVOR: dict[str, Any] = {"dpuMode": "dpu"}
SELECTING = {"strategy": {"type": "RollingUpdate"}, "dpuNodeSelector": {"matchLabels": {"rack": "r1"}}}
TEMPLATE = {"bfb": {"name": "jammy"}, "dpuFlavor": "hbn", "nodeEffect": {"noEffect": True}}
SET = {**SELECTING, "dpuTemplate": {"spec": TEMPLATE}}
CHAIN = {
    "template": {
        "spec": {
            "template": {"spec": {"switches": [{"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]}]}}
        }
    }
}


@pytest.fixture(scope="module")
def servers(kubernetes_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ControlPlane]]:
    """The API servers of a source cluster and of a DPU cluster."""
    with control_planes(tmp_path_factory.mktemp("clusters")) as found:
        with asyncio.Runner() as runner:
            for server in found:
                runner.run(_install(server))
        yield found


async def _install(server: ControlPlane) -> None:
    async with connect(str(server.kubeconfig())) as api:
        await install(api, *map(definition, KINDS))


@pytest.fixture
async def clusters(servers: list[ControlPlane]) -> AsyncIterator[ResourceClusters]:
    source, dpus = servers
    async with connect(str(source.kubeconfig())) as api, connect(str(dpus.kubeconfig())) as dpu_api:
        namespace = f"test-{random.SystemRandom().getrandbits(40):010x}"
        await create_namespace(api, namespace)
        async with plane() as made:
            made_clusters = ResourceClusters(made, api, dpu_api, namespace)
            yield made_clusters
        await made_clusters.clear()


async def provisioned(made: ResourceClusters) -> None:
    """Two hosts with a DPU each, and a DPUSet that selects them."""
    await made.create(kinds.BFB, "jammy", IMAGE)
    await made.create(kinds.DPU_FLAVOR, "hbn", FLAVOR)
    for host in ("h1", "h2"):
        await made.create(kinds.DPU_NODE, host, {"dpus": [{"name": f"d-{host}"}]}, labels={"rack": "r1"})
        await made.create(kinds.DPU_DEVICE, f"d-{host}", {"serialNumber": f"mt-{host}"})
    await made.create(kinds.DPU_SET, "all", SET)


async def networked(made: ResourceClusters) -> None:
    """A DPU cluster, and a chain that goes there."""
    await made.create(kinds.DPU_CLUSTER, "dpus", {"type": "static", "kubeconfig": "dpus-kubeconfig"})
    await made.create(kinds.DPU_SERVICE_CHAIN, "edge", CHAIN)


async def with_dpus(made: ResourceClusters) -> None:
    await provisioned(made)
    await made.start("r1")
    await made.until(lambda: _has(made, kinds.DPU, "h1-d-h1", "h2-d-h2"), "two DPUs")
    await made.until_quiet()


async def _has(made: ResourceClusters, kind: str, *names: str, in_dpu_cluster: bool = False) -> bool:
    return await made.names(kind, in_dpu_cluster=in_dpu_cluster) == sorted(names)


async def found(made: ResourceClusters, kind: str, name: str, **options: Any) -> dict[str, Any]:
    value = await made.object(kind, name, **options)
    assert value is not None, f"{kind} {name} does not exist"
    return value


async def test_the_dpus_of_a_set_are_written_with_owner_labels_finalizer_and_status(clusters: ResourceClusters) -> None:
    await with_dpus(clusters)
    owner, made = await found(clusters, kinds.DPU_SET, "all"), await found(clusters, kinds.DPU, "h1-d-h1")
    assert made["metadata"]["finalizers"] == [dpu.FINALIZER]
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": owner["apiVersion"],
            "kind": "DPUSet",
            "name": "all",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert made["metadata"]["labels"]["provisioning.dpu.nvidia.com/dpuset-name"] == "all"
    assert made["metadata"]["annotations"][OWNER].endswith("/all")
    assert made["spec"]["serialNumber"] == "mt-h1" and made["spec"]["bfb"] == "jammy"
    assert made["status"]["phase"] == "Initializing"
    ready = next(each for each in made["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "Pending") or ready["status"] == "False"
    assert owner["metadata"]["finalizers"] == [dpu_set.FINALIZER]
    assert owner["status"]["dpuStatistics"] == {"Initializing": 2}
    assert (await found(clusters, kinds.BFB, "jammy"))["metadata"]["finalizers"] == [images.BFB_FINALIZER]


async def test_a_field_of_ours_is_restored_and_reported_and_a_field_of_others_is_left(
    clusters: ResourceClusters,
) -> None:
    await with_dpus(clusters)
    await clusters.edit(
        kinds.DPU, "h1-d-h1", {"spec": {"bfb": "other"}, "metadata": {"labels": {"mine": "x"}}}, manager="kubectl-edit"
    )

    async def is_restored() -> bool:
        return bool((await found(clusters, kinds.DPU, "h1-d-h1"))["spec"]["bfb"] == "jammy")

    await clusters.until(is_restored, "the field is restored")
    await clusters.until_quiet()
    assert (await found(clusters, kinds.DPU, "h1-d-h1"))["metadata"]["labels"]["mine"] == "x"
    [event] = clusters.events
    assert event.reason == "FieldRestored" and "spec.bfb: changed by kubectl-edit" in event.message


async def test_an_object_deleted_by_hand_comes_back(clusters: ResourceClusters) -> None:
    await with_dpus(clusters)
    before = (await found(clusters, kinds.DPU, "h1-d-h1"))["metadata"]["uid"]
    await clusters.delete(kinds.DPU, "h1-d-h1")

    async def is_back() -> bool:
        value = await clusters.object(kinds.DPU, "h1-d-h1")
        return value is not None and value["metadata"]["uid"] != before

    await clusters.until(is_back, "the DPU is back")


async def test_a_rollout_that_only_changes_its_own_state_is_shown(clusters: ResourceClusters) -> None:
    """Such as the end of a bake time, or a pause: no object changes, and nothing that is observed of one."""
    await with_dpus(clusters)
    await clusters.plan("all")
    await clusters.until(lambda: _updates(clusters, ""), "the rollout is shown")
    await clusters.until_quiet()
    await clusters.request("all", "pause")
    await clusters.until(lambda: _updates(clusters, "paused"), "the pause is shown")


async def _updates(made: ResourceClusters, text: str) -> bool:
    conditions = (await found(made, kinds.DPU_SET, "all"))["status"]["conditions"]
    return any(text in each["message"] for each in conditions if each["type"] == "DPUsUpdated")


async def test_a_device_that_a_search_found_is_created_and_is_its_users_from_then_on(
    clusters: ResourceClusters,
) -> None:
    await clusters.start("r1")
    await clusters.discover(kinds.DPU_DEVICE, "s1", {"serialNumber": "S1"}, {"rack": "r1"})
    await clusters.until(lambda: clusters.object(kinds.DPU_DEVICE, "s1"), "the device exists")
    await clusters.until(lambda: _status(clusters, kinds.DPU_DEVICE, "s1"), "its status is written")
    made = await found(clusters, kinds.DPU_DEVICE, "s1")
    assert (made["metadata"]["labels"], made["spec"]["serialNumber"]) == ({"rack": "r1"}, "S1")
    changed = {"metadata": {"labels": {"rack": "r2"}}, "spec": {"bmcIp": "10.0.0.7"}}
    await clusters.edit(kinds.DPU_DEVICE, "s1", changed)
    await clusters.until_quiet()
    edited = await found(clusters, kinds.DPU_DEVICE, "s1")
    assert (edited["metadata"]["labels"], edited["spec"]["bmcIp"]) == ({"rack": "r2"}, "10.0.0.7")
    assert not clusters.events, "nothing of the plane was taken back"
    await clusters.delete(kinds.DPU_DEVICE, "s1")
    await clusters.until(lambda: _has(clusters, kinds.DPU_DEVICE), "the device is gone")
    await clusters.until_quiet()
    assert await clusters.names(kinds.DPU_DEVICE) == []


async def _status(made: ResourceClusters, kind: str, name: str) -> Any:
    return (await found(made, kind, name)).get("status")


async def test_nothing_is_requested_while_nothing_changes_and_a_restart_writes_nothing(
    clusters: ResourceClusters,
) -> None:
    await networked(clusters)
    await with_dpus(clusters)
    counts = [clusters.counted.requests, clusters.dpu_counted.requests]
    before = [counts[0].copy(), counts[1].copy()]
    await asyncio.sleep(3.0)
    assert [_more(count, earlier) for count, earlier in zip(counts, before, strict=True)] == [{}, {}]
    clusters.plane.kill("r1")
    writes = clusters.counted.writes + clusters.dpu_counted.writes
    driver = await clusters.start("r2")
    await clusters.until(lambda: len(driver.clusters) == 2 and all(each.is_listed for each in driver.clusters.values()))
    await asyncio.sleep(2.0)
    assert clusters.counted.writes + clusters.dpu_counted.writes == writes


def _more(now: Counter[str], before: Counter[str]) -> Counter[str]:
    """The requests since an earlier count, but for those that look for a definition that a wanted kind lacks."""
    found = now - before
    del found["schemas"]
    return found


async def test_deletion_waits_for_what_remains_and_says_so_and_then_ends(clusters: ResourceClusters) -> None:
    await with_dpus(clusters)
    await clusters.observe(kinds.DPU, "h1-d-h1", {"ready": False, "phase": "OS Installing", "message": "installing"})
    await clusters.delete(kinds.BFB, "jammy")
    await clusters.until(lambda: _says(clusters, kinds.BFB, "jammy", "is in use by DPUSet"), "the BFB is in use")
    await clusters.delete(kinds.DPU_SET, "all")
    await clusters.until(lambda: _says(clusters, kinds.DPU_SET, "all", "waits until DPU"), "the set waits")
    await clusters.until(lambda: _has(clusters, kinds.DPU, "h1-d-h1"), "the other DPU is gone")
    await clusters.observe(kinds.DPU, "h1-d-h1", None)
    await clusters.until(lambda: _has(clusters, kinds.DPU), "no DPU")
    await clusters.until(lambda: _has(clusters, kinds.DPU_SET), "no set")
    await clusters.until(lambda: _has(clusters, kinds.BFB), "no image")


async def _says(made: ResourceClusters, kind: str, name: str, text: str) -> bool:
    conditions = (await found(made, kind, name)).get("status", {}).get("conditions", [])
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    return ready is not None and ready["reason"] == "AwaitingDeletion" and text in ready["message"]


async def test_objects_of_a_dpu_cluster_are_written_with_their_namespace_and_deleted(
    clusters: ResourceClusters,
) -> None:
    await networked(clusters)
    await clusters.start("r1")
    await clusters.until(lambda: clusters.object(kinds.SERVICE_CHAIN_SET, "edge", in_dpu_cluster=True), "the chain set")
    await clusters.until_quiet()
    await clusters.edit(
        kinds.SERVICE_CHAIN_SET,
        "edge",
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
        in_dpu_cluster=True,
    )
    await clusters.until(lambda: _is_labelled(clusters), "the label is back")
    await clusters.delete(kinds.DPU_SERVICE_CHAIN, "edge")
    await clusters.until(lambda: _has(clusters, kinds.SERVICE_CHAIN_SET, in_dpu_cluster=True), "no chain set")
    await clusters.until(lambda: _has(clusters, kinds.DPU_SERVICE_CHAIN), "no chain")
    names = {item["metadata"]["name"] for item in (await get(clusters.dpu_api, "/api/v1/namespaces"))["items"]}
    assert clusters.namespace in names


async def _is_labelled(made: ResourceClusters) -> bool:
    value = await found(made, kinds.SERVICE_CHAIN_SET, "edge", in_dpu_cluster=True)
    return "app.kubernetes.io/managed-by" in value["metadata"].get("labels", {})


async def test_after_an_outage_every_object_is_written_once(clusters: ResourceClusters) -> None:
    await networked(clusters)
    await clusters.start("r1")
    await clusters.until(lambda: clusters.object(kinds.SERVICE_CHAIN_SET, "edge", in_dpu_cluster=True), "the chain set")
    await clusters.until_quiet()
    clusters.dpu_counted.is_away = True
    names = [f"chain-{number}" for number in range(5)]
    for name in names:
        await clusters.create(kinds.DPU_SERVICE_CHAIN, name, CHAIN)
    await asyncio.sleep(2.0)
    clusters.dpu_counted.requests.clear()
    clusters.dpu_counted.is_away = False
    await clusters.until(lambda: _has(clusters, kinds.SERVICE_CHAIN_SET, "edge", *names, in_dpu_cluster=True), "all")
    await clusters.until_quiet()
    assert clusters.dpu_counted.requests["patch"] == len(names)


async def test_two_replicas_make_each_write_once_and_each_goes_on_alone(clusters: ResourceClusters) -> None:
    await networked(clusters)
    await clusters.start("r1")
    await clusters.start("r2")
    await clusters.until(lambda: clusters.object(kinds.SERVICE_CHAIN_SET, "edge", in_dpu_cluster=True), "the chain set")
    await clusters.until_quiet()
    counts = {name: driver.clusters[clusters.dpu_source].writer.counts for name, driver in clusters.drivers.items()}
    for counted in (clusters.counted, clusters.dpu_counted):
        assert counted.versions and not counted.repeated(), "no write was repeated by the other one"
    before = counts["r2"].writes
    clusters.plane.kill("r1")
    unlabelled = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    await clusters.edit(kinds.SERVICE_CHAIN_SET, "edge", unlabelled, in_dpu_cluster=True)
    await clusters.until(lambda: counts["r2"].writes > before, "the other one restores the label")


async def test_a_replica_that_reads_the_log_late_takes_nothing_back(clusters: ResourceClusters) -> None:
    """Its watches show at once what another replica has written for records that it has not read."""
    await with_dpus(clusters)
    late = await clusters.start("late", lag_s=1.0)
    clusters.plane.first.insert(0, clusters.plane.first.pop())  # the late one is the first to write
    await clusters.until(lambda: late.clusters and late.clusters[SOURCE].is_current, "it has listed all objects")
    phases: list[str] = []
    deleted: list[str] = []

    def see(items: Mapping[str, Any]) -> None:
        for item in items.values():
            deleted.extend([item["metadata"]["name"]] if "deletionTimestamp" in item["metadata"] else [])
        phase = items["h1-d-h1"].get("status", {}).get("phase", "")
        phases.extend([phase] if phases[-1:] != [phase] else [])

    path = API_KINDS[kinds.DPU].path(clusters.namespace)
    watching = asyncio.create_task(Watched(clusters.api, path, see).run())
    expected = ["Initializing", "Pending", "Node Effect", "OS Installing", "Rebooting"]
    for phase in expected[1:]:
        await clusters.observe(kinds.DPU, "h1-d-h1", {"ready": False, "phase": phase})
        await clusters.until(partial(phases.__contains__, phase), phase)
    await clusters.create(kinds.DPU_DEVICE, "d-h3", {"serialNumber": "mt-h3"})
    await clusters.create(kinds.DPU_NODE, "h3", {"dpus": [{"name": "d-h3"}]}, labels={"rack": "r1"})
    await clusters.until(lambda: _has(clusters, kinds.DPU, "h1-d-h1", "h2-d-h2", "h3-d-h3"), "a third DPU")
    await clusters.until_quiet(3.0)
    watching.cancel()
    assert phases == expected, "no status went back"
    assert not deleted, "no DPU was deleted that only the other one knew"


@pytest.fixture
async def older(own_control_plane: ControlPlane, servers: list[ControlPlane]) -> AsyncIterator[ResourceClusters]:
    """A source cluster with DPF's own definitions of release 24.10."""
    async with (
        connect(str(own_control_plane.kubeconfig())) as api,
        connect(str(servers[1].kubeconfig())) as dpu_api,
        plane() as made,
    ):
        await install(api, *_older_definitions())
        await create_namespace(api, "lab")
        yield ResourceClusters(made, api, dpu_api, "lab")


def _older_definitions() -> list[dict[str, Any]]:
    found = [yaml.safe_load(path.read_text()) for path in sorted(Path(os.environ[DPF_CRDS]).glob("*.yaml"))]
    for each in found:
        each["spec"].pop("conversion", None)  # one version never calls the webhook
    return found


@pytest.mark.dpf_crds
async def test_definitions_of_release_24_10_are_written_without_the_fields_that_they_lack(
    older: ResourceClusters,
) -> None:
    made = older
    await made.create(kinds.BFB, "jammy", IMAGE)
    await made.create(kinds.DPU_FLAVOR, "hbn", {})
    await made.create(kinds.DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 10, "version": "v1.30.0"})
    await made.create(kinds.DPU_SERVICE_TEMPLATE, "fw", {"deploymentServiceName": "fw", "helmChart": _CHART})
    await made.create(kinds.DPU_SERVICE_CONFIGURATION, "fw", _CONFIGURATION)
    await made.create(kinds.DPU_DEPLOYMENT, "edge", _DEPLOYMENT)
    await made.start("r1")
    await made.until(lambda: _has(made, kinds.DPU_SET, "edge-all"), "the set")
    await made.until(lambda: made.names(kinds.DPU_SERVICE), "the service")
    await made.until(lambda: made.names(kinds.DPU_SERVICE_CHAIN), "the chain")
    await made.until_quiet()
    deployment = await found(made, kinds.DPU_DEPLOYMENT, "edge")
    assert {each["type"] for each in deployment["status"]["conditions"]} >= {"Ready", "DPUSetsReady"}
    driver = made.drivers["r1"]
    assert all(each.writer.counts.given_up == 0 for each in driver.clusters.values())
    before = made.counted.requests.copy()
    await asyncio.sleep(2.0)
    assert _more(made.counted.requests, before) == {}
    await made.delete(kinds.DPU_DEPLOYMENT, "edge")
    for kind in (kinds.DPU_SERVICE_CHAIN, kinds.DPU_SERVICE, kinds.DPU_SET, kinds.DPU_DEPLOYMENT):
        await made.until(partial(_has, made, kind), f"no {kind}")


_CHART = {"source": {"repoURL": "https://charts.example.org", "version": "1.2.3", "chart": "fw"}}
_CONFIGURATION = {
    "deploymentServiceName": "fw",
    "serviceConfiguration": {"deployInCluster": False},
    "interfaces": [{"name": "in", "network": "mybrsfc"}],
}
_DEPLOYMENT = {
    "dpus": {
        "bfb": "jammy",
        "flavor": "hbn",
        "dpuSets": [{"nameSuffix": "all", "nodeSelector": {"matchLabels": {"a": "b"}}}],
    },
    "services": {"fw": {"serviceTemplate": "fw", "serviceConfiguration": "fw"}},
    "serviceChains": [{"ports": [{"service": {"name": "fw", "interface": "in"}}]}],
}
