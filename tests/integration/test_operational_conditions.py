"""The operational conditions of a DPU in service, while one of its services breaks and runs again.

The source cluster and the DPU cluster have real API servers. The plane has every role and a simulated device. Argo CD
and the kubelet of the DPU are played, also the pods of the service: they break and run again by order of the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import serving
from deploy.demo.platform.manifests import FIRST_IMAGE, FLAVOR, NAMESPACE, Object, dpu_name, host_name
from projections.resources import kinds
from projections.resources.conditions.operational import CRITICAL, SUMMARY
from projections.zones.dpus.phases import READY
from schemas.resources.dpf.dpu import DPU_KIND, OPERATIONAL_CONDITIONS
from schemas.resources.dpf.names import CRITICAL_SERVICE, SERVICE_ID
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.cluster_peers import ClusterPeers
from tests.support.kubernetes.peers import Peers
from tests.support.kubernetes.requests import create, create_namespace
from tests.support.kubernetes.two_clusters import (
    NODES,
    PODS,
    Site,
    acting,
    connected_site,
    control_planes,
    started_plane,
)
from tests.support.kubernetes.watched import Watched

SERVICE = "router"
APPLICATION = f"{manifests.CLUSTER}-{SERVICE}"
ALL = dict.fromkeys(OPERATIONAL_CONDITIONS, "True")


class History:
    """The phases and the uids of the one DPU, at each moment since it was first ready."""

    def __init__(self, site: Site) -> None:
        self.status: Mapping[str, Any] = {}
        self.since_ready: set[tuple[str, str]] = set()
        self.watched = Watched(site.api, DPU_KIND.path(NAMESPACE), self._see)

    def operational(self) -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.status.get("operationalConditions", ())}

    def message(self, aspect: str) -> str:
        return next(str(each["message"]) for each in self.status["operationalConditions"] if each["type"] == aspect)

    def _see(self, items: Mapping[str, Any]) -> None:
        for item in items.values():
            self.status = item.get("status") or {}
            if self.since_ready or self.status.get("phase") == READY:
                self.since_ready.add((item["metadata"]["uid"], self.status.get("phase", "")))


@pytest.fixture
def servers(kubernetes_programs: None, tmp_path: Path) -> Iterator[list[ControlPlane]]:
    with control_planes(tmp_path) as found:
        yield found


@pytest.fixture
def peers() -> list[Peers]:
    return []


@pytest.fixture
async def site(servers: list[ControlPlane], peers: list[Peers]) -> AsyncIterator[Site]:
    """The clusters, with actors that play their controllers and never fail by themselves."""
    async with connected_site(servers, "1x1") as found:
        await create(found.api, NODES, {"metadata": {"name": host_name(found.dpus[0])}})
        peers.append(Peers(found.api, NAMESPACE, found.dpu_kubeconfig, rng=Random(1), failure=0.0))
        kubelets = ClusterPeers(found.api, found.dpu_api, NAMESPACE, rng=Random(2), failure=0.0)
        async with acting([*peers, kubelets]):
            yield found


def foundations(site: Site, image_url: str) -> list[Object]:
    """A DPUSet of the one DPU, whose flavor waits for all operational conditions, and a critical service."""
    gate = {"serviceReadiness": {"gate": SUMMARY}}
    found = [
        each._replace(spec={**each.spec, **gate}) if (each.kind, each.name) == (kinds.DPU_FLAVOR, FLAVOR) else each
        for each in site.foundations(image_url)
    ]
    chart = {"repoURL": "https://charts.example.org", "chart": SERVICE, "version": "1.0.0"}
    spec = {"helmChart": {"source": chart}, "serviceID": SERVICE}
    service = Object(kinds.DPU_SERVICE, SERVICE, spec, {CRITICAL_SERVICE: ""})
    return [*found, manifests.dpu_set(FIRST_IMAGE), service]


async def create_pod(site: Site) -> None:
    """A ready pod of the service on the DPU."""
    await create_namespace(site.dpu_api, NAMESPACE)
    containers = [{"name": "main", "image": "example.com/router"}]
    spec = {"nodeName": dpu_name(site.dpus[0]), "containers": containers}
    await create(site.dpu_api, PODS, {"metadata": {"name": SERVICE, "labels": {SERVICE_ID: SERVICE}}, "spec": spec})
    await set_pod(site, is_ready=True)


async def set_pod(site: Site, *, is_ready: bool) -> None:
    """Set the status of the pod as a kubelet does."""
    state = {"running": {}} if is_ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    main = {"name": "main", "image": "", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state}
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [main]}
    await site.dpu_api.patch(f"{PODS}/{SERVICE}/status", {"status": status}, "merge")


async def until_service_is(site: Site, status: str) -> None:
    """Wait for the condition ApplicationsReady of the service."""

    async def holds() -> bool:
        found = (await site.items("dpuservices"))[SERVICE]["status"]["conditions"]
        return ("ApplicationsReady", status) in {(each["type"], each["status"]) for each in found}

    await site.until(holds)


@pytest.mark.timeout(600)
async def test_a_critical_service_that_breaks_in_service_is_reported_and_nothing_is_installed_again(
    site: Site, peers: list[Peers], tmp_path: Path
) -> None:
    history = History(site)

    async def is_whole() -> bool:
        return history.operational() == ALL

    async def is_broken() -> bool:
        return history.operational() == ALL | {CRITICAL: "False", SUMMARY: "False"}

    async with (
        serving({FIRST_IMAGE: "3.0.0"}, Random(3)) as url,
        started_plane(site, tmp_path),
        acting([history.watched]),
    ):
        await site.apply(foundations(site, url))
        await site.until_ready(FIRST_IMAGE)
        await create_pod(site)
        await site.until(is_whole)
        await until_service_is(site, "True")

        peers[0].crashing.add(APPLICATION)
        await set_pod(site, is_ready=False)
        await site.until(is_broken)
        expected = f"Pod {NAMESPACE}/{SERVICE} of service {SERVICE} is not ready: CrashLoopBackOff"
        assert history.message(CRITICAL) == expected
        await until_service_is(site, "False")

        peers[0].crashing.clear()
        await set_pod(site, is_ready=True)
        await site.until(is_whole)
        await until_service_is(site, "True")
        assert {phase for _, phase in history.since_ready} == {READY}
        assert len(history.since_ready) == 1, "it is the same DPU"
