"""Runs the scenarios of cliques on a real API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from drivers.kubernetes.client import connect
from eventstore.ids import envelope, uuid7
from projections.kubernetes.clique_objects import Mode
from schemas.events import IndicesClaimed
from schemas.kubernetes.api import KubernetesApi
from schemas.resources.compute_domain import DOMAIN_LABEL, UPSTREAM_KINDS
from schemas.resources.crds import definition
from tests.contract.clique_scenarios import AssignScenarios, Opened, address, fill
from tests.contract.daemon_scenarios import BesideScenarios
from tests.support.kubernetes.answer_faults import Refusal
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.clique_cluster import CLIQUE, REPLICA, CliqueCluster
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.daemon_role import let_read
from tests.support.kubernetes.faulting_proxy import FaultingProxy, faulting
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import install
from tests.support.memory_log import START_MS
from tests.support.memory_plane import plane

DAEMON = "daemon"


@asynccontextmanager
async def cliques_of(api: KubernetesApi, namespace: str) -> AsyncIterator[CliqueCluster]:
    """A driver namespace of a real API server, with a plane in memory."""
    await install(api, *map(definition, UPSTREAM_KINDS))
    async with plane() as made:
        loop_ms = round(asyncio.get_running_loop().time() * 1_000)
        made.ahead_ms = round(time.time() * 1_000) - loop_ms - START_MS
        await made.start(REPLICA, "api")
        east = CliqueCluster(api, namespace, made, Random(7))
        try:
            yield east
        finally:
            await east.stop()


@pytest.fixture
def opened(cluster: Cluster) -> Opened:
    return lambda: cliques_of(cluster.api, cluster.namespace)


class TestAssign(AssignScenarios):
    soon_s = 60.0


class TestBeside(BesideScenarios):
    pass


async def test_33_an_api_server_that_restarts_in_mid_formation_changes_no_index(
    own_control_plane: ControlPlane,
) -> None:
    async with (
        connect(str(own_control_plane.kubeconfig())) as api,
        cliques_of(api, "default") as east,
    ):
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, 4)
        await asyncio.gather(*(east.create_pod(f"n{number}", domain, address(number)) for number in range(4, 9)))
        own_control_plane.kill("kube-apiserver")
        await asyncio.sleep(2.0)
        await own_control_plane.start()

        async def is_complete() -> bool:
            shown = await east.indices(domain)
            return len(shown) == 9 and shown == east.folded(domain)

        await east.until(is_complete, timeout_s=90.0)
        shown = await east.indices(domain)
        assert {node: shown[node] for node in ("n0", "n1", "n2", "n3")} == {f"n{number}": number for number in range(4)}
        assert sorted(shown.values()) == list(range(9))


@asynccontextmanager
async def behind_a_proxy(
    control_plane: ApiServer, cluster: Cluster, *, pods: int
) -> AsyncIterator[tuple[FaultingProxy, CliqueCluster, str]]:
    """An edge that reaches its API server through a proxy, and a domain with so many pods."""
    async with (
        faulting(control_plane) as proxy,
        connect(str(control_plane.kubeconfig(server=proxy.url))) as api,
        cliques_of(api, cluster.namespace) as east,
    ):
        domain = await east.create_domain()
        east.start_edge()
        await fill(east, domain, pods)
        yield proxy, east, domain


async def test_21_a_pod_that_only_the_cache_lacks_keeps_its_index(control_plane: ApiServer, cluster: Cluster) -> None:
    """A list that looks complete lacks two pods, of which one exists. The live list of their domain first fails."""
    async with behind_a_proxy(control_plane, cluster, pods=4) as (proxy, east, domain):
        proxy.stall("/pods")
        await east.delete_pod("n2")
        live = f"labelSelector={DOMAIN_LABEL}%3D{domain}"
        hidden = {"n1", "n2"}
        proxy.show(east.pods_path, lambda item: item["spec"]["nodeName"] not in hidden, unless=live)
        proxy.inject(Refusal(status=503), "GET", within=live, times=1_000)
        await proxy.expire_watches("/pods")

        async def has_failed() -> bool:
            return proxy.injected["503"] >= 2

        await east.until(has_failed)
        await asyncio.sleep(1.0)
        four = {f"n{number}": number for number in range(4)}
        assert (east.folded(domain), await east.indices(domain)) == (four, four), "a failed list changes nothing"
        assert {pod.node for pod in east.edge.pods.by_uid.values()} == {"n0", "n3"}
        proxy.clear_injected()
        await east.until_indices(domain, {"n0": 0, "n1": 1, "n3": 3})
        await asyncio.sleep(2.0)
        assert east.folded(domain) == {"n0": 0, "n1": 1, "n3": 3}, "the live list has the pod of n1"
        assert east.edge.released == 1


async def test_21_a_pod_that_only_the_cache_has_keeps_its_index_until_its_deletion_is_seen(
    control_plane: ApiServer, cluster: Cluster
) -> None:
    async with behind_a_proxy(control_plane, cluster, pods=3) as (proxy, east, domain):
        proxy.stall("/pods")
        await east.delete_pod("n1")
        said = envelope("s", "edge", uuid7(east.plane.now_ms(), east.rng))
        await east.submit(domain, IndicesClaimed(said, domain, CLIQUE, ["guest"], [address(9)], [], [], []))
        four = {"n0": 0, "n1": 1, "n2": 2, "guest": 3}
        await east.until_indices(domain, four)
        await asyncio.sleep(2.0)
        assert (east.folded(domain), await east.indices(domain)) == (four, four), "the cache still has the pod"
        proxy.clear()
        proxy.cut_watches("/pods")
        await east.until_indices(domain, {"n0": 0, "n2": 2, "guest": 3})


async def test_13_daemons_that_may_not_write_find_the_rows_that_are_assigned(own_control_plane: ControlPlane) -> None:
    """Upstream's daemons at a cluster that took their right to write cliques."""
    own_control_plane.kill("kube-apiserver")
    own_control_plane.add_user(DAEMON)
    await own_control_plane.start()
    async with (
        connect(str(own_control_plane.kubeconfig())) as api,
        connect(str(own_control_plane.kubeconfig(DAEMON))) as daemon_api,
        cliques_of(api, "default") as east,
    ):
        await let_read(api, DAEMON)
        east.daemon_api = daemon_api
        domain = await east.create_domain()
        east.start_edge()
        nodes = {f"n{number}": address(number) for number in range(18)}
        await asyncio.gather(*(east.start_daemon(node, domain, ip, is_ready=True) for node, ip in nodes.items()))

        async def is_ready() -> bool:
            rows = (await east.rows(domain)).values()
            return len(rows) == 18 and {found["status"] for found in rows} == {"Ready"}

        await east.until(is_ready, timeout_s=90.0)
        await east.until_daemons_know()
        await asyncio.sleep(1.0)
        answers = [answer for daemon in east.daemons.values() for answer in daemon.answers]
        assert {status for _, status in answers} <= {403}
        assert sorted(index for daemon in east.daemons.values() for index in daemon.indices) == list(range(18))
        assert await east.indices(domain) == east.folded(domain)


@pytest.mark.parametrize("mode", ["assign", "beside"])
async def test_11_all_stop_and_the_object_is_collected_with_its_owners(
    garbage_collected: ControlPlane, mode: Mode
) -> None:
    """The pods own the object. It stays while one of them exists, and is not made again after the last one."""
    async with (
        connect(str(garbage_collected.kubeconfig())) as api,
        cliques_of(api, "default") as east,
    ):
        domain = await east.create_domain()
        east.start_edge(mode)
        nodes = [f"n{number}" for number in range(6)]
        start = east.create_pod if mode == "assign" else east.start_daemon
        await asyncio.gather(*(start(node, domain, address(number)) for number, node in enumerate(nodes)))

        async def is_formed() -> bool:
            return len(await east.indices(domain)) == 6 == len(east.folded(domain))

        await east.until(is_formed)
        before = await east.indices(domain)
        await asyncio.gather(*(east.delete_pod(node) for node in nodes[1:]))
        await east.until_indices(domain, {"n0": before["n0"]})
        await east.delete_pod("n0")

        async def is_gone() -> bool:
            return await east.clique(domain) is None

        await east.until(is_gone)
        await asyncio.sleep(2.0)
        assert await is_gone(), "the plane makes no object for a domain without pods"
        assert east.folded(domain) == {}
        await start("n3", domain, address(9))
        # A daemon takes the lowest free index; the plane gives a node its former one.
        await east.until_indices(domain, {"n3": before["n3"] if mode == "assign" else 0})
