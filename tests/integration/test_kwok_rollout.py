"""A DPUSet whose update drains hosts by the hundred, in a source cluster with a scheduler and workloads.

kwok plays the kubelets of hosts and of DPUs. Every state of hosts, pods and DPUs that a watch shows is checked, not
only the last one. Each step prints how long it took.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deploy.demo.platform.image_server import serving
from deploy.demo.platform.manifests import (
    FIRST_IMAGE,
    FLAVOR,
    NAMESPACE,
    RACK,
    SECOND_IMAGE,
    Object,
    dpu_name,
    host_name,
)
from drivers.simulators.bmc_network import SimulatedDpu
from projections.resources import kinds
from projections.zones.dpus.phases import CLUSTER_CONFIG
from schemas.resources.dpf.dpu import DPU_KIND
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.kwok_nodes import CONTROLLERS, OF_WORKLOADS, STAGES, KwokNodes
from tests.support.kubernetes.peers import Peers
from tests.support.kubernetes.requests import create, create_namespace, get
from tests.support.kubernetes.two_clusters import (
    NODES,
    Site,
    acting,
    connected_site,
    control_planes,
    is_installed,
    started_plane,
)
from tests.support.kubernetes.watched import Watched

RACKS, HOSTS_PER_RACK = 4, 34
"""The last rack has hosts without DPUs; every fifth host of the others has two."""
HOSTS_MAX = 8
UNAVAILABLE_MAX = 16
"""The maximum number of DPUs that an update may make unavailable."""
WAVES = (1, 12, 120)
REPLICAS, DISRUPTED_MAX = 300, 6
"""The pods of the Deployment, and how many of them may be away. The hosts that are drained at once have more of them,
so the budget refuses evictions, unless a busy machine drains one host after the other."""
CREATED = 201
PATIENCE_S = 1_800.0
"""Three times what the longest step took on two processors that had other work as well."""
WORK = "work"
PODS_OF_WORK = f"/api/v1/namespaces/{WORK}/pods"
APP, AGENT = "web", "host-agent"
PAUSE_S = 2.0
"""Pause between two checks of a condition, and of actors between two rounds. Each lists all DPUs, whose API server has
the same processors as everything else here."""


class Joins:
    """Lets DPUs that are installed join the DPU cluster, while `run` runs. Their Nodes become ready by kwok."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._joined: set[str] = set()
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._watched = Watched(site.api, DPU_KIND.path(NAMESPACE), self._dpus)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watched.run())
            while True:
                name = await self._due.get()
                await create(self._site.dpu_api, NODES, {"metadata": {"name": name}})

    def _dpus(self, items: Mapping[str, Any]) -> None:
        for name, each in items.items():
            if name not in self._joined and (each.get("status") or {}).get("phase") == CLUSTER_CONFIG:
                self._joined.add(name)
                self._due.put_nowait(name)


class Moments:
    """What must hold at every moment, and what was seen. `violations` are the sentences about the moments at which it
    did not hold."""

    def __init__(self, site: Site) -> None:
        self.violations: list[str] = []
        self.cordoned_most = 0
        self.cordoned: Counter[str] = Counter()
        """The number of times that each host was cordoned."""
        self.available_least = REPLICAS
        self.unavailable_most = 0
        self.has_work = False
        """Whether the Deployment has been available, from which moment on its budget must be kept."""
        self._hosts: frozenset[str] = frozenset()
        self.watched = [
            Watched(site.api, NODES, self._nodes),
            Watched(site.api, PODS_OF_WORK, self._pods, f"app={APP}"),
            Watched(site.api, DPU_KIND.path(NAMESPACE), self._dpus),
        ]

    def _nodes(self, items: Mapping[str, Any]) -> None:
        found = frozenset(name for name, each in items.items() if each["spec"].get("unschedulable"))
        self.cordoned.update(found - self._hosts)
        self._hosts = found
        self.cordoned_most = max(self.cordoned_most, len(found))
        if len(found) > HOSTS_MAX:
            self.violations.append(f"{len(found)} hosts are drained: {sorted(found)}")

    def _pods(self, items: Mapping[str, Any]) -> None:
        found = sum(map(_is_available, items.values()))
        self.has_work |= found == REPLICAS
        if self.has_work:
            self.available_least = min(self.available_least, found)
            if found < REPLICAS - DISRUPTED_MAX:
                self.violations.append(f"only {found} pods are available")

    def _dpus(self, items: Mapping[str, Any]) -> None:
        """During the update, DPUs begin only within their wave, and after the waves before it."""
        new = [each for each in items.values() if each["spec"]["bfb"] in (SECOND_IMAGE, {"name": SECOND_IMAGE})]
        if not new:
            return
        busy = [each for each in new if not is_installed(each, SECOND_IMAGE)]
        done = len(new) - len(busy)
        self.unavailable_most = max(self.unavailable_most, len(busy))
        if len(busy) > UNAVAILABLE_MAX:
            self.violations.append(f"{len(busy)} DPUs are unavailable")
        for wave in WAVES[:-1]:
            if len(new) > wave > done:
                self.violations.append(f"{len(new)} DPUs have begun, and {done} of a wave of {wave} are ready")


def _is_available(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


class Figures:
    """How long each step took."""

    def __init__(self, site: Site) -> None:
        self.lines: list[str] = []
        self._site = site

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began_s, before = time.monotonic(), evictions(self._site)
        yield
        after = evictions(self._site)
        found = ", ".join(f"{after[status] - before[status]} of {status}" for status in sorted(after))
        self.lines.append(f"{what}: {time.monotonic() - began_s:.1f} s, evictions: {found or 'none'}")


def evictions(site: Site) -> Counter[int]:
    """The number of evictions that the plane asked for, by the status of their answer."""
    return Counter(each.status for each in site.proxies[0].requests if each.path.endswith("/eviction"))


@pytest.fixture
def servers(kwok_programs: None, tmp_path: Path) -> Iterator[list[ControlPlane]]:
    with control_planes(tmp_path) as found:
        source, dpu_cluster = found
        source.start_controllers(",".join((*CONTROLLERS, *OF_WORKLOADS)))
        source.start_scheduler()
        for each in (source, dpu_cluster):
            each.start_kwok(STAGES)
        yield found


@pytest.fixture
async def site(servers: list[ControlPlane]) -> AsyncIterator[Site]:
    async with connected_site(servers, f"{RACKS}x{HOSTS_PER_RACK}") as found:
        found.patience_s, found.pause_s = PATIENCE_S, PAUSE_S
        peers = Peers(found.api, NAMESPACE, found.dpu_kubeconfig, rng=Random(1), period_s=PAUSE_S)
        async with acting([peers, Joins(found)]):
            yield found


def dpu_set(image: str) -> Object:
    """All DPUs, in waves."""
    spec = {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": UNAVAILABLE_MAX}},
        "dpuNodeSelector": {"matchExpressions": [{"key": RACK, "operator": "Exists"}]},
        "dpuTemplate": {"spec": {"bfb": {"name": image}, "dpuFlavor": FLAVOR, "nodeEffect": {"drain": True}}},
    }
    waves = ",".join(map(str, WAVES))
    annotations = {"dpuplane.io/rollout-waves": waves, "dpuplane.io/rollout-bake-time": "1s"}
    return Object(kinds.DPU_SET, "all", spec, annotations=annotations)


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    containers = [{"name": "main", "image": "example.com/work"}]
    pod = {"terminationGracePeriodSeconds": 1, "containers": containers}
    pod |= {"tolerations": [{"operator": "Exists"}]} if kind == "DaemonSet" else {}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec |= {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def create_hosts(site: Site) -> None:
    """The Nodes of all hosts, also of those without DPUs."""
    hosts = [
        host_name(SimulatedDpu(rack, host, 0)) for rack in range(1, RACKS + 1) for host in range(1, HOSTS_PER_RACK + 1)
    ]
    nodes = KwokNodes(site.api)
    await nodes.create({"metadata": {"name": host}} for host in hosts)

    async def are_ready() -> bool:
        return len(await nodes.heartbeats()) == len(hosts)

    await site.until(are_ready)


async def create_work(site: Site, moments: Moments) -> None:
    """A Deployment with a budget, and a DaemonSet. Returns when all their pods are ready."""
    await create_namespace(site.api, WORK)
    apps = f"/apis/apps/v1/namespaces/{WORK}"
    budget = {"maxUnavailable": DISRUPTED_MAX, "selector": {"matchLabels": {"app": APP}}}
    path = f"/apis/policy/v1/namespaces/{WORK}/poddisruptionbudgets"
    await create(site.api, path, {"metadata": {"name": APP}, "spec": budget})
    await create(site.api, f"{apps}/deployments", workload("Deployment", APP, replicas=REPLICAS))
    await create(site.api, f"{apps}/daemonsets", workload("DaemonSet", AGENT))

    async def are_ready() -> bool:
        return len(await pods(site, AGENT)) == RACKS * HOSTS_PER_RACK and moments.has_work

    await site.until(are_ready)


async def pods(site: Site, app: str) -> dict[str, str]:
    """The host of each available pod of a workload by uid."""
    items = (await get(site.api, PODS_OF_WORK, {"labelSelector": f"app={app}"}))["items"]
    return {item["metadata"]["uid"]: item["spec"]["nodeName"] for item in items if _is_available(item)}


async def drained_while(site: Site, moments: Moments, acts: Callable[[], Awaitable[None]]) -> None:
    """While something happens, all hosts with DPUs are drained, and nothing else is disturbed."""
    with_dpus = {host_name(dpu) for dpu in site.dpus}
    work, agents, cordoned = await pods(site, APP), await pods(site, AGENT), moments.cordoned.copy()
    await acts()

    async def is_over() -> bool:
        nodes = (await get(site.api, NODES))["items"]
        is_cordoned = any(each["spec"].get("unschedulable") for each in nodes)
        return not is_cordoned and await site.is_empty("dpunodemaintenances") and len(await pods(site, APP)) == REPLICAS

    await site.until(is_over)
    times = moments.cordoned - cordoned
    assert times == Counter(with_dpus), "each host with DPUs is drained once, also one with two"
    kept = {uid: host for uid, host in (await pods(site, APP)).items() if uid in work}
    assert not with_dpus & {*kept.values()}, "their pods are evicted"
    assert await pods(site, AGENT) == agents, "pods of a DaemonSet stay"
    assert moments.violations == []


@pytest.mark.slow
@pytest.mark.timeout(5_400)
async def test_an_update_drains_a_hundred_hosts_within_all_limits(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moments, figures = Moments(site), Figures(site)
    images = {FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}
    async with (
        serving(images, Random(3)) as url,
        acting(moments.watched),
        started_plane(site, tmp_path),
    ):
        with figures.timed(f"{RACKS * HOSTS_PER_RACK} hosts and {REPLICAS} pods of a Deployment are ready"):
            await create_hosts(site)
            await create_work(site, moments)

        async def install() -> None:
            with figures.timed(f"{len(site.dpus)} DPUs are found and installed"):
                await site.apply([dpu_set(FIRST_IMAGE), *site.foundations(url, maxUnavailableDPUNodes=HOSTS_MAX)])
                await site.until_ready(FIRST_IMAGE)

        async def update() -> None:
            with figures.timed("all have the next image"):
                await site.apply([dpu_set(SECOND_IMAGE)])
                await site.until_ready(SECOND_IMAGE)

        await drained_while(site, moments, install)
        await drained_while(site, moments, update)
        found = (await get(site.dpu_api, NODES))["items"]
        assert {each["metadata"]["name"] for each in found} == set(map(dpu_name, site.dpus))
        deletions = [each for each in site.proxies[0].requests if each.method == "DELETE" and "/pods/" in each.path]
        assert not deletions and evictions(site)[CREATED], "pods are only evicted"
        assert moments.cordoned_most == HOSTS_MAX and moments.unavailable_most > HOSTS_MAX
    figures.lines.append(
        f"most hosts drained {moments.cordoned_most}, fewest pods available {moments.available_least}, "
        f"most DPUs unavailable {moments.unavailable_most}"
    )
    with capsys.disabled():
        print("", *figures.lines, sep="\n")
