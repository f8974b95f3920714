"""DPF's manifests from `kubectl apply` to Ready, to a new image and away again, in a source cluster and a DPU cluster.

Both have a real API server. The plane has every role and simulated devices: it watches and writes both clusters, drains
the Nodes of hosts, and waits for the Nodes of DPUs. Argo CD, Kamaji, and what runs in a DPU cluster are played by
actors that fail at random.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from commands.kubernetes.resource_edge import STATED_KINDS
from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import serving
from deploy.demo.platform.manifests import FIRST_IMAGE, NAMESPACE, SECOND_IMAGE, Object, dpu_name, host_name
from deploy.process.plane import Plane
from projections.kubernetes.foreign.kinds import IN_DPU_CLUSTER
from projections.resources import kinds
from projections.resources.kinds import DPU_DISCOVERY
from schemas.resources.dpf.names import HOST as HOST_LABEL
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.cluster_peers import ClusterPeers
from tests.support.kubernetes.peers import Peers
from tests.support.kubernetes.requests import create, get
from tests.support.kubernetes.two_clusters import (
    NODES,
    PODS,
    SOURCE,
    Site,
    acting,
    connected_site,
    control_planes,
    started_plane,
)

SITE = "dpuclusters,dpfoperatorconfigs"
OF_USERS = ",".join(kind.plural for kind in STATED_KINDS if kind.plural not in SITE)
MADE = "applications,appprojects,tenantcontrolplanes,daemonsets,services,configmaps,serviceaccounts"
"""The kinds of others that the plane makes in the source cluster."""
IMAGES = {FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}
POOLS = "/apis/nv-ipam.nvidia.com/v1alpha1/ippools"
QUIET_S = 2.0


@pytest.fixture
def servers(kubernetes_programs: None, tmp_path: Path) -> Iterator[list[ControlPlane]]:
    with control_planes(tmp_path) as found:
        yield found


@pytest.fixture
def peers() -> list[Peers | ClusterPeers]:
    return []


@pytest.fixture
async def site(servers: list[ControlPlane], peers: list[Peers | ClusterPeers]) -> AsyncIterator[Site]:
    """The clusters, with actors that play their controllers and a pod on each host."""
    async with connected_site(servers, "3x1") as found:
        for host in sorted(map(host_name, found.dpus)):
            await create(found.api, NODES, {"metadata": {"name": host}})
            containers = [{"name": "work", "image": "example.com/work"}]
            spec = {"nodeName": host, "terminationGracePeriodSeconds": 0, "containers": containers}
            await create(found.api, PODS, {"metadata": {"name": f"work-{host}"}, "spec": spec})
        peers.append(Peers(found.api, NAMESPACE, found.dpu_kubeconfig, rng=Random(1)))
        peers.append(ClusterPeers(found.api, found.dpu_api, NAMESPACE, rng=Random(2)))
        async with acting(peers):
            yield found


def wanted(image: str) -> list[Object]:
    return [manifests.dpu_set(image), manifests.deployment(image, [2])]


def pool(name: str, subnet: str) -> Object:
    """An address pool that no service uses."""
    spec = {"ipv4Subnet": {"subnet": f"{subnet}/16", "gateway": subnet[:-1] + "1", "perNodeIPCount": 8}}
    return Object(kinds.DPU_SERVICE_IPAM, name, spec)


async def pools(site: Site) -> dict[str, str]:
    """The uids of the address pools in the DPU cluster by name."""
    items = (await get(site.dpu_api, POOLS))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


async def has_pools(site: Site, *names: str) -> bool:
    """Whether the DPU cluster has these address pools and no other."""
    return (await pools(site)).keys() == set(names)


async def until_gone_from_dpu_cluster(site: Site) -> None:
    """Wait until no Node is left in the DPU cluster, and nothing that follows from manifests."""
    left: list[str] = []

    async def is_gone() -> bool:
        paths = (NODES, *(each.path for each in IN_DPU_CLUSTER))
        lists = {path: (await get(site.dpu_api, path))["items"] for path in paths}
        found = ((path, item["metadata"]) for path, items in lists.items() for item in items)
        left[:] = [f"{path}: {about['name']}" for path, about in found if about.get("namespace") != "default"]
        return not left

    try:
        await site.until(is_gone)
    except TimeoutError:
        raise AssertionError(f"left in the DPU cluster: {left}") from None


async def until_idle(site: Site) -> None:
    """Wait until the plane has asked both clusters for nothing for a while, but for watches and missing kinds."""

    def requests() -> int:
        seen = (each for proxy in site.proxies for each in proxy.requests)
        return sum("watch" not in each.query and each.path.count("/") > 3 for each in seen)

    seen = -1
    async with asyncio.timeout(site.patience_s):
        while seen != requests():
            seen = requests()
            await asyncio.sleep(QUIET_S)


async def until_forgotten(site: Site, made: Plane) -> None:
    """Wait until the log has no object of the source cluster any more, and nothing that was observed or decided.
    The last result of a search stays."""
    left: list[str] = []

    async def is_forgotten() -> bool:
        state = made.states.resources(SOURCE)
        tables = (state.objects, state.observed, state.rollouts, state.dpu_rollouts, state.allocations)
        left[:] = [f"{table.name} {key}" for table in tables for key in table.rows if DPU_DISCOVERY not in key]
        return not left

    try:
        await site.until(is_forgotten)
    except TimeoutError:
        raise AssertionError(f"left in the log: {left}") from None


@pytest.mark.timeout(600)
async def test_manifests_become_ready_and_leave_nothing(
    site: Site, peers: Sequence[Peers | ClusterPeers], tmp_path: Path
) -> None:
    async with serving(IMAGES, Random(3)) as url, started_plane(site, tmp_path) as made:
        await site.apply([*wanted(FIRST_IMAGE), *site.foundations(url)])
        await site.until_ready(FIRST_IMAGE)
        assert all(each.failures for each in peers), "the actors failed now and then"
        assert set(await site.items("dpudevices")) == {dpu.serial.lower() for dpu in site.dpus}
        nodes = {each["metadata"]["name"]: each["metadata"] for each in (await get(site.dpu_api, NODES))["items"]}
        assert {name: about["labels"][HOST_LABEL] for name, about in nodes.items()} == {
            dpu_name(dpu): host_name(dpu) for dpu in site.dpus
        }
        assert not await site.items("pods"), "each host was drained"
        hosts = (await get(site.api, NODES))["items"]
        assert not any(each["spec"].get("unschedulable") for each in hosts), "and takes pods again"

        await site.kubectl("delete", OF_USERS, "--all", "--wait=false")
        await site.until(lambda: site.is_empty(OF_USERS))
        await until_gone_from_dpu_cluster(site)
        await site.kubectl("delete", SITE, "--all", "--wait=false")
        await site.until(lambda: site.is_empty(f"{SITE},{MADE}"))
        await until_forgotten(site, made)
        assert not any(zones.dpus.rows for zones in made.states.all_zones())


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_new_image_and_other_changes_are_found_after_both_clusters_were_away_and_lost_their_history(
    site: Site, tmp_path: Path
) -> None:
    """An API server keeps the history of five minutes. After a longer outage no watch can continue."""
    async with serving(IMAGES, Random(3)) as url, started_plane(site, tmp_path):
        await site.apply([*wanted(FIRST_IMAGE), *site.foundations(url), pool("old", "10.30.0.0")])
        await site.until_ready(FIRST_IMAGE)
        await site.until(lambda: has_pools(site, "old", "loopbacks"))
        await until_idle(site)
        before = await pools(site)
        for proxy in site.proxies:
            proxy.go_down()
        await site.apply([*wanted(SECOND_IMAGE), pool("new", "10.40.0.0")])
        await site.kubectl("delete", "dpuserviceipam", "old", "--wait=false")
        await delete_pool(site, "loopbacks")
        for server in (site.source, site.dpu_cluster):
            await server.compact_etcd()
            server.kill("kube-apiserver")  # its cache of past events goes with it
            await server.start()
        marks = [len(proxy.requests) for proxy in site.proxies]
        for proxy in site.proxies:
            proxy.is_down = False
        await site.until_ready(SECOND_IMAGE)

        async def are_right() -> bool:
            is_made_again = (await pools(site)).get("loopbacks") != before["loopbacks"]
            is_removed = "old" not in await site.items("dpuserviceipams")
            return is_made_again and is_removed and await has_pools(site, "new", "loopbacks")

        await site.until(are_right)
        for path, proxy, mark in zip((NODES, POOLS), site.proxies, marks, strict=False):
            lists = [each for each in proxy.requests[mark:] if (each.path, each.status) == (path, 200)]
            assert any("watch" not in each.query and "limit" in each.query for each in lists), "the watch had expired"


async def delete_pool(site: Site, name: str) -> None:
    """Delete an address pool in the DPU cluster, as a stranger does."""
    (path,) = [
        item["metadata"]["namespace"]
        for item in (await get(site.dpu_api, POOLS))["items"]
        if item["metadata"]["name"] == name
    ]
    await site.dpu_cluster.kubectl("delete", "ippools.nv-ipam.nvidia.com", name, "-n", path, "--wait=false")
