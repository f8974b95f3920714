"""Steps of DPUs whose hosts are nodes of a real cluster: shared maintenances, budgets, handshakes, scripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from drivers.kubernetes.hosts import node_maintenances
from drivers.provisioning import maintenance, reboots
from drivers.provisioning.reboots import REQUESTED_IN
from projections.resources import kinds
from projections.resources.devices import FEATURE_PREFIX
from projections.zones.dpus.phases import NODE_EFFECT, READY, REBOOTING
from schemas.events import ResourcesApplied
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED, WAIT_FOR_NODE_EFFECT
from schemas.resources.dpf.node import DPU_NODE, DPU_NODE_MAINTENANCE
from tests.support.host_steps import HostsPlane
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get, install
from tests.support.memory_plane import running

EAST = "east"
STEPS_S = 90.0
OPERATOR_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodemaintenances.maintenance.nvidia.com"},
    "spec": {
        "group": "maintenance.nvidia.com",
        "names": {"kind": "NodeMaintenance", "plural": "nodemaintenances"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class CountedApi:
    """An API server that counts the lists of all maintenances: a step finds them in the fold."""

    def __init__(self, api: KubernetesApi) -> None:
        self.lists = 0
        self.watch, self.create, self.replace = api.watch, api.create, api.replace
        self.patch, self.delete, self._get = api.patch, api.delete, api.get

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        self.lists += path.endswith("/dpunodemaintenances") and "fieldSelector" not in (query or {})
        return await self._get(path, query)


class KubernetesHosts(HostsPlane):
    """A plane whose hosts are nodes of a cluster. Its objects are stated as the cluster's edge would state them."""

    cluster: Cluster
    counted: CountedApi
    made_ms: dict[str, int]

    @property
    def api(self) -> KubernetesApi:
        return self.cluster.api

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"

    @property
    def maintenances(self) -> str:
        return DPU_NODE_MAINTENANCE.path(self.namespace)

    async def kubectl(self, *arguments: str) -> str:
        return await self.cluster.plane.kubectl(*arguments, "-n", self.namespace)

    async def add_host(self, host: str, *devices: str, **wanted: Any) -> list[str]:
        """A Node with a pod, its DPUNode, and DPUs that are wanted on it."""
        await create(self.api, "/api/v1/nodes", {"metadata": {"name": host}})
        spec = {"nodeRebootMethod": wanted.get("reboot") or {"external": {}}}
        body = {"apiVersion": DPU_NODE.api_version, "kind": "DPUNode", "metadata": {"name": host}, "spec": spec}
        await create(self.api, DPU_NODE.path(self.namespace), body)
        await self.add_pod(f"work-{host}", host)
        return await self.want(host, *devices, **({"reboot": {"external": {}}} | wanted))

    async def add_pod(self, name: str, host: str) -> None:
        spec = {
            "nodeName": host,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "work", "image": "example.com/work"}],
        }
        await create(self.api, self.pods, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        ready = {"type": "Ready", "status": "True"}  # a budget does not protect a pod that never ran
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.api.patch(f"{self.pods}/{name}/status", status, "merge")

    async def names(self, path: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await get(self.api, path))["items"])

    def follow(self) -> asyncio.Task[None]:
        return self._tasks.create_task(self._follow_maintenances())

    async def _follow_maintenances(self) -> None:
        """State the maintenances of the cluster as it has them, until cancelled."""
        known: dict[str, Any] = {}
        while True:
            found = {each["metadata"]["name"]: each for each in (await get(self.api, self.maintenances))["items"]}
            for name in known.keys() - found.keys():
                await self.unstate(kinds.DPU_NODE_MAINTENANCE, name)
            for name, each in found.items():
                if known.get(name) != each:
                    await self._state_maintenance(name, each)
            known = found
            await asyncio.sleep(0.1)

    async def _state_maintenance(self, name: str, found: Mapping[str, Any]) -> None:
        metadata = found["metadata"]
        created_ms = self.made_ms.setdefault(metadata["uid"], self.now_ms())  # the plane has a clock of its own
        event = ResourcesApplied(
            self.command(name),
            self.source,
            [kinds.DPU_NODE_MAINTENANCE],
            [self.namespace],
            [name],
            [metadata["uid"]],
            [metadata["generation"]],
            [created_ms],
            [created_ms if "deletionTimestamp" in metadata else 0],
            [metadata.get("labels") or {}],
            [metadata.get("annotations") or {}],
            [json.dumps(found["spec"])],
            [],
            resource_versions=[int(metadata["resourceVersion"])],
        )
        replica = self.replicas[min(self.replicas)]
        answer = await replica.submit(self.resources_partition, self.source.encode(), event, timeout_s=30.0)
        assert answer.outcome.code in ("done", "unchanged"), answer

    async def node(self, name: str) -> Mapping[str, Any]:
        return await get(self.api, f"/api/v1/nodes/{name}")

    async def is_asked_to_reboot(self, host: str) -> bool:
        metadata = (await get(self.api, DPU_NODE.path(self.namespace, host)))["metadata"]
        return EXTERNAL_REBOOT_REQUIRED in (metadata.get("annotations") or {})

    async def has_rebooted(self, host: str) -> None:
        await self.kubectl("annotate", "dpunode", host, f"{EXTERNAL_REBOOT_REQUIRED}-")

    async def boot(self, host: str, boot_id: str) -> None:
        """State a boot of a host as its kubelet does."""
        status = {"status": {"nodeInfo": {"bootID": boot_id}}}
        await self.api.patch(f"/api/v1/nodes/{host}/status", status, "merge")

    async def until_phase(self, phase: str, *names: str) -> float:
        return await self.until(lambda: all(self.dpu(name).phase == phase for name in names), timeout_s=STEPS_S)


async def eventually(holds: Any, *arguments: Any) -> None:
    async with asyncio.timeout(STEPS_S):
        while not await holds(*arguments):
            await asyncio.sleep(0.1)


@asynccontextmanager
async def hosts(cluster: Cluster, *definitions: Mapping[str, Any]) -> AsyncIterator[KubernetesHosts]:
    await install(cluster.api, definition(DPU_NODE), definition(DPU_NODE_MAINTENANCE), *definitions)
    async with running(lambda tasks: KubernetesHosts(tasks, source=EAST, namespace=cluster.namespace)) as made:
        made.cluster = cluster
        made.counted = CountedApi(cluster.api)
        made.made_ms = {}
        made.connections = replace(made.connections, apis={EAST: made.counted}.get, simulated=None)
        await made.provision("p1")
        following = made.follow()
        try:
            yield made
        finally:
            following.cancel()
            for each in definitions:  # other tests drain without the operator
                await cluster.plane.kubectl("delete", "crd", each["metadata"]["name"])
            for node in (await get(cluster.api, "/api/v1/nodes"))["items"]:
                if node["metadata"]["name"].startswith(cluster.prefix):
                    await cluster.api.delete(f"/api/v1/nodes/{node['metadata']['name']}", uid=node["metadata"]["uid"])


@pytest.mark.started_cluster
async def test_two_dpus_share_a_drain_that_keeps_a_budget_and_a_reboot(cluster: Cluster) -> None:
    async with hosts(cluster) as made:
        host = f"{cluster.prefix}-h1"
        names = await made.add_host(host, "d1", "d2")
        budget = {
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": f"work-{host}"}}},
        }
        await create(made.api, made.budgets, budget)
        for name in names:
            await made.request(name, "provision", "image")
        await made.until(lambda: any("disruption" in made.dpu(name).task for name in names), timeout_s=STEPS_S)
        assert await made.names(made.pods) == [f"work-{host}"], "nothing is deleted against a budget"
        found = await get(made.api, DPU_NODE_MAINTENANCE.path(made.namespace, f"{host}-drain"))
        assert sorted(found["spec"]["requestor"]) == names
        await made.api.delete(f"{made.budgets}/b", uid=(await get(made.api, f"{made.budgets}/b"))["metadata"]["uid"])
        await made.until_phase(REBOOTING, *names)
        assert (await made.node(host))["spec"]["unschedulable"] and not await made.names(made.pods)
        await eventually(made.is_asked_to_reboot, host)
        made.kill("p1")
        await made.provision("p2")
        await made.has_rebooted(host)
        await made.until_phase(READY, *names)
        assert not await made.is_asked_to_reboot(host), "one reboot for both DPUs and both processes"
        assert "unschedulable" not in (await made.node(host))["spec"] and not await made.names(made.maintenances)


@pytest.mark.started_cluster
async def test_a_hold_is_released_and_a_deleted_maintenance_waits_for_its_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release is seen by a watch: the step would look again only after an hour."""
    monkeypatch.setattr(maintenance, "RECHECK_S", 3_600.0)
    async with hosts(cluster) as made:
        host = f"{cluster.prefix}-h1"
        (name,) = await made.add_host(host, "d1", effect={"hold": True}, reboot={"none": {}})
        await made.request(name, "provision", "image")
        await made.until(lambda: WAIT_FOR_NODE_EFFECT in made.dpu(name).task, timeout_s=STEPS_S)
        assert made.dpu(name).phase == NODE_EFFECT
        await made.kubectl("delete", "dpunodemaintenance", f"{host}-hold", "--wait=false")
        await made.kubectl("annotate", "dpunodemaintenance", f"{host}-hold", f"{WAIT_FOR_NODE_EFFECT}-")
        await made.until(lambda: made.dpu(name).phase != NODE_EFFECT, timeout_s=STEPS_S)
        await made.until_phase(READY, name)
        assert not await made.names(made.maintenances)


@pytest.mark.started_cluster
async def test_a_host_that_waits_for_a_place_sees_it_in_the_fold(cluster: Cluster) -> None:
    """The step would look again only after a minute, and never lists the maintenances of other hosts."""
    async with hosts(cluster) as made:
        await made.state(kinds.DPF_OPERATOR_CONFIG, "config", {"provisioningController": {"maxUnavailableDPUNodes": 1}})
        hosts_of = {}
        for device in ("d1", "d2"):
            host = f"{cluster.prefix}-h{device}"
            (name,) = await made.add_host(host, device, effect={"hold": True}, reboot={"none": {}})
            hosts_of[name] = host
        names = [*hosts_of]
        for name in names:
            await made.request(name, "provision", "image")
        await made.until(lambda: any("the limit" in made.dpu(name).task for name in names), timeout_s=STEPS_S)
        (waiting,) = [name for name in names if "the limit" in made.dpu(name).task]
        (first,) = {*names} - {waiting}
        await made.until(lambda: WAIT_FOR_NODE_EFFECT in made.dpu(first).task, timeout_s=STEPS_S)
        for name in (first, waiting):
            assert made.dpu(waiting).phase == NODE_EFFECT
            maintenance = f"{hosts_of[name]}-hold"
            await made.until(lambda name=name: WAIT_FOR_NODE_EFFECT in made.dpu(name).task, timeout_s=STEPS_S)  # type: ignore[misc]
            await made.kubectl("annotate", "dpunodemaintenance", maintenance, f"{WAIT_FOR_NODE_EFFECT}-")
            await made.until_phase(READY, name)
        assert made.counted.lists == 0


@pytest.mark.started_cluster
@pytest.mark.parametrize("by", [pytest.param("skip", marks=pytest.mark.slow), "user"])
async def test_no_host_stays_cordoned_without_a_step_that_ends_its_maintenance(cluster: Cluster, by: str) -> None:
    """The last step is skipped while its process is dead, or a user deletes the maintenance with its finalizer."""
    async with hosts(cluster) as made:
        host = f"{cluster.prefix}-h1"
        (name,) = await made.add_host(host, "d1")
        await made.request(name, "provision", "image")
        await eventually(made.is_asked_to_reboot, host)
        assert (await made.node(host))["spec"]["unschedulable"]
        if by == "user":
            patch = '{"metadata":{"finalizers":null}}'
            await made.kubectl("patch", "dpunodemaintenance", f"{host}-drain", "--type=merge", f"-p={patch}")
            await made.kubectl("delete", "dpunodemaintenance", f"{host}-drain")
            await made.has_rebooted(host)
            await made.until_phase(READY, name)
        else:
            made.kill("p1")
            await made.start("p0", "api", acts=False)
            while made.dpu(name).phase != READY:
                await made.request(name, "skip")
            await made.provision("p2")
            await made.until(lambda: made.object(kinds.DPU_NODE_MAINTENANCE, f"{host}-drain") is None, timeout_s=60)
        assert "unschedulable" not in (await made.node(host))["spec"] and not await made.names(made.maintenances)


@pytest.mark.started_cluster
async def test_another_boot_of_a_host_of_release_24_10_proves_its_reboot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a DPUNode: nobody has to remove the annotation of its Node. The boot is seen by a watch: the step
    would look again only after an hour."""
    monkeypatch.setattr(reboots, "RECHECK_S", 3_600.0)
    async with hosts(cluster) as made:
        host, pci = f"{cluster.prefix}-h1", "0000-03-00"
        await create(made.api, "/api/v1/nodes", {"metadata": {"name": host}})
        await made.boot(host, "boot-1")
        labels = {"host": host, f"{FEATURE_PREFIX}0-pci-address": pci}
        await made.state(kinds.NODE, host, labels=labels, namespace="")
        template = {"spec": {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}}
        selector = {"matchLabels": {"host": host}}
        await made.state(kinds.DPU_SET, "old", {"dpuTemplate": template, "nodeSelector": selector})
        name = f"{host}-{pci}"
        await made.register_on(host, name)
        for number in (2, 3):
            await made.request(name, "provision", f"image-{number}")
            await made.until(lambda: EXTERNAL_REBOOT_REQUIRED in made.dpu(name).task, timeout_s=STEPS_S)
            annotations = (await made.node(host))["metadata"]["annotations"]
            assert EXTERNAL_REBOOT_REQUIRED in annotations and annotations[REQUESTED_IN] == f"boot-{number - 1}"
            assert made.dpu(name).phase == REBOOTING
            await made.boot(host, f"boot-{number}")
            await made.until(lambda: made.dpu(name).phase != REBOOTING, timeout_s=STEPS_S)
            assert EXTERNAL_REBOOT_REQUIRED not in (await made.node(host))["metadata"]["annotations"]
            await made.until_phase(READY, name)


@pytest.mark.started_cluster
async def test_a_failed_script_is_run_again(cluster: Cluster) -> None:
    async with hosts(cluster) as made:
        host = f"{cluster.prefix}-h1"
        pod = {"spec": {"containers": [{"name": "reboot", "image": "example.com/reboot"}]}}
        path = f"/api/v1/namespaces/{made.namespace}/configmaps"
        await create(made.api, path, {"metadata": {"name": "script"}, "data": {"pod-template": json.dumps(pod)}})
        (name,) = await made.add_host(host, "d1", effect={"noEffect": True}, reboot={"script": {"name": "script"}})
        await made.request(name, "provision", "image")
        first = await job(made)
        container = first["spec"]["template"]["spec"]["containers"][0]
        assert first["spec"]["backoffLimit"] == 3
        assert {each["name"]: each["value"] for each in container["env"]} == {
            "DPUNODE_NAME": host,
            "DPUNODE_REBOOT_METHOD": "SystemLevelReset",
            "DPUNODE_REBOOT_METHODS_PER_DPU": json.dumps({name: "SystemLevelReset"}),
        }
        await end_job(made, first, "Failed", "BackoffLimitExceeded")
        await made.until(lambda: made.dpu(name).failures == 1, timeout_s=STEPS_S)
        assert f"{host}-script-job failed" in made.dpu(name).message
        second = await job(made, not_uid=first["metadata"]["uid"])
        await end_job(made, second, "Complete", "CompletionsReached")
        await made.until_phase(READY, name)


async def job(made: KubernetesHosts, *, not_uid: str = "") -> dict[str, Any]:
    """The Job of the script, other than the one with this uid."""
    async with asyncio.timeout(STEPS_S):
        while True:
            for each in (await get(made.api, made.jobs))["items"]:
                if each["metadata"]["uid"] != not_uid:
                    found: dict[str, Any] = each
                    return found
            await asyncio.sleep(0.1)


async def end_job(made: KubernetesHosts, found: Mapping[str, Any], condition: str, reason: str) -> None:
    """Report the end of a Job, as the controller of Jobs does."""
    now = "2026-01-01T00:00:00Z"
    interim = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}[condition]
    conditions = [
        {"type": each, "status": "True", "reason": reason, "message": "it ended", "lastTransitionTime": now}
        for each in (interim, condition)
    ]
    status: dict[str, Any] = {"startTime": now, "conditions": conditions}
    if condition == "Complete":
        status |= {"completionTime": now, "succeeded": 1}
    path = f"{made.jobs}/{found['metadata']['name']}/status"
    await made.api.patch(path, {"status": status}, "merge")


@pytest.mark.started_cluster
async def test_the_maintenance_operator_drains_where_it_is_installed(cluster: Cluster) -> None:
    async with hosts(cluster, OPERATOR_DEFINITION) as made:
        host = f"{cluster.prefix}-h1"
        (name,) = await made.add_host(host, "d1", reboot={"none": {}})
        await made.request(name, "provision", "image")
        path = f"{node_maintenances.collection(made.namespace)}/{host}"
        await eventually(exists, made.api, path)
        spec = (await get(made.api, path))["spec"]
        assert spec["requestorID"] == "dpu.nvidia.com" and spec["nodeName"] == host
        assert spec["additionalRequestors"] == ["provisioning.dpu.nvidia.com"]
        assert spec["drainSpec"] == {"force": True, "deleteEmptyDir": True}
        assert made.dpu(name).phase == NODE_EFFECT and await made.names(made.pods) == [f"work-{host}"]
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "x"}
        await made.api.patch(f"{path}/status", {"status": {"conditions": [ready]}}, "merge")
        await made.until_phase(READY, name)
        assert not await exists(made.api, path)


async def exists(api: KubernetesApi, path: str) -> bool:
    try:
        await get(api, path)
    except ApiError:
        return False
    return True
