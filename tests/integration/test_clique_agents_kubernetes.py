"""Scenarios of users of upstream's driver at the files of clique agents, whose pods are in a real API server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from commands.client.client import PlaneClient
from deploy.clique_agent.agent import MemberIdentity
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from projections.cliques.files import FREE_SLOT_ADDRESS, SIGNAL_INTERVAL_MS, dns_name
from schemas.api import dpuplane_pb2 as pb
from schemas.kubernetes.api import NOT_FOUND, ApiError
from schemas.kubernetes.objects import Metadata
from schemas.resources.compute_domain import (
    CLIQUE_LABEL,
    COMPUTE_DOMAIN,
    COMPUTE_DOMAIN_CLIQUE,
    DOMAIN_LABEL,
    UPSTREAM_KINDS,
)
from schemas.resources.crds import definition
from tests.support.clique_agents import CLIQUE, Running, agent
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import create, get, install
from tests.support.served import now_ms

PATIENCE_S = 90.0
SLOTS = 18
CHANGES = 60


class AgentCluster:
    """A driver namespace, a plane that assigns its cliques, and the agents that a test starts in its pods."""

    def __init__(self, cluster: Cluster, plane: Plane, folder: Path, agents: AsyncExitStack) -> None:
        self._api = cluster.api
        self._namespace = cluster.namespace
        self._plane = plane
        self._folder = folder
        self._agents = agents
        self.pods: dict[tuple[str, str], Metadata] = {}
        """The newest pod of each node of a domain."""
        self._started = 0

    async def create_domain(self, name: str) -> str:
        body = {
            "apiVersion": COMPUTE_DOMAIN.api_version,
            "kind": COMPUTE_DOMAIN.name,
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}},
        }
        uid: str = (await create(self._api, COMPUTE_DOMAIN.path(self._namespace), body))["metadata"]["uid"]
        return uid

    async def create_pod(self, domain: str, node: str, address: str) -> Metadata:
        """A running daemon pod of a node."""
        labels = {DOMAIN_LABEL: domain, CLIQUE_LABEL: CLIQUE}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": f"daemon-{node}-", "labels": labels},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "daemon", "image": "example.com/daemon"}],
            },
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        made = msgspec.convert((await create(self._api, path, body))["metadata"], Metadata, strict=False)
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await self._api.patch(f"{path}/{made.name}/status", {"status": status}, "merge")
        self.pods[domain, node] = made
        return made

    async def delete_pod(self, domain: str, node: str) -> None:
        pod = self.pods.pop((domain, node))
        await self._api.delete(f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}", uid=pod.uid)

    async def start_agent(self, domain: str, node: str, address: str) -> Running:
        """A pod of a node and the agent in it, whose daemon runs."""
        pod = await self.create_pod(domain, node, address)
        self._started += 1
        member = MemberIdentity(domain, CLIQUE, node, address, pod.uid, now_ms())
        found = await self._agents.enter_async_context(
            agent(self._folder, str(self._plane.addresses["api"]), self._started, member=member)
        )
        await until(lambda: bool(found.daemon()))
        return found

    async def release(self, domain: str, node: str) -> None:
        """Release the index of a node, whose pod still runs, as an operator does."""
        request = pb.ReleaseIndicesRequest(domain=domain, clique=CLIQUE, releases=[pb.ReleaseSpec(node=node)])
        client = PlaneClient(
            [str(self._plane.addresses["api"])],
            timeout_s=5.0,
            now_ms=now_ms,
            rng=random.Random(5),
            principal="operator",
        )
        async with client:
            assert (await client.command("ReleaseIndices", request)).outcome == pb.OUTCOME_DONE

    async def rows(self, domain: str) -> dict[str, tuple[int, str]]:
        """Index and address of each node, in the object of the domain's clique; empty before the object exists."""
        try:
            found = await get(self._api, COMPUTE_DOMAIN_CLIQUE.path(self._namespace, f"{domain}.{CLIQUE}"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return {}
        return {row["nodeName"]: (row["index"], row["ipAddress"]) for row in found.get("daemons") or []}


@pytest.fixture
async def east(cluster: Cluster, tmp_path: Path) -> AsyncIterator[AgentCluster]:
    await install(cluster.api, *map(definition, UPSTREAM_KINDS))
    async with assigning(cluster, tmp_path / "plane") as plane, AsyncExitStack() as agents:
        yield AgentCluster(cluster, plane, tmp_path / "agents", agents)


@asynccontextmanager
async def assigning(cluster: Cluster, data: Path) -> AsyncIterator[Plane]:
    """A plane that assigns the cliques of a namespace."""
    flags: dict[str, object] = {
        "data": data,
        "kubeconfig": str(cluster.plane.kubeconfig()),
        "source": "east",
        "kubernetes_cliques": "assign",
        "driver_namespace": cluster.namespace,
        **dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0"),
    }
    async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=random.Random(3)) as plane:
        yield plane


async def until_shown(east: AgentCluster, domain: str, wanted: dict[str, int]) -> None:
    """Wait until the object of the domain's clique has exactly these indices."""

    async def is_shown() -> bool:
        return {node: index for node, (index, _) in (await east.rows(domain)).items()} == wanted

    await until(is_shown)


async def until_rows(east: AgentCluster, domain: str, wanted: dict[str, tuple[int, str]]) -> None:
    """Wait until the object of the domain's clique has exactly these rows: it is written after the agents know them."""

    async def are_shown() -> bool:
        return await east.rows(domain) == wanted

    await until(are_shown)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


def mapping(domain: str, addresses: dict[int, str]) -> list[str]:
    """The lines of every slot in a hosts file."""
    return [f"{addresses.get(index, FREE_SLOT_ADDRESS)}\t{dns_name(domain, index)}" for index in range(SLOTS)]


def slots(found: Running) -> list[str]:
    """The lines of the slots in the hosts file of an agent."""
    return [line for line in found.hosts.read_text().splitlines() if "compute-domain-daemon-" in line]


async def test_23_two_domains_that_reuse_an_address_do_not_mix(east: AgentCluster) -> None:
    one, other = await east.create_domain("one"), await east.create_domain("other")
    first = await east.start_agent(one, "a", "10.0.0.1")
    second = await east.start_agent(other, "b", "10.0.0.1")
    await east.create_pod(other, "c", "10.0.0.2")
    await until(lambda: slots(second) == mapping(other, {0: "10.0.0.1", 1: "10.0.0.2"}))
    assert slots(first) == mapping(one, {0: "10.0.0.1"})
    assert not {*first.peers.read_text().split()} & {*second.peers.read_text().split()}
    await until_rows(east, one, {"a": (0, "10.0.0.1")})
    await until_rows(east, other, {"b": (0, "10.0.0.1"), "c": (1, "10.0.0.2")})
    await east.delete_pod(other, "c")
    await until(lambda: slots(second) == mapping(other, {0: "10.0.0.1"}))
    await until_rows(east, other, {"b": (0, "10.0.0.1")})
    await east.delete_pod(one, "a")
    first.task.cancel()
    await until_rows(east, one, {})
    assert await east.rows(other) == {"b": (0, "10.0.0.1")}, "the same address in another domain stays"
    assert first.signals_sent == 0, "nothing has changed for the first domain"


async def test_24_a_running_daemon_keeps_its_index_and_a_forced_change_restarts_it(east: AgentCluster) -> None:
    """The clique is full and a 19th pod waits: the index that an operator takes from the daemon goes to that pod."""
    domain = await east.create_domain("cd")
    await east.create_pod(domain, "n1", "10.0.0.1")
    await until_shown(east, domain, {"n1": 0})
    found = await east.start_agent(domain, "n0", "10.0.0.100")
    for number in range(2, SLOTS):
        await east.create_pod(domain, f"n{number}", f"10.0.0.{number}")

    async def is_full() -> bool:
        return len(await east.rows(domain)) == SLOTS

    await until(is_full)
    first, shown = found.daemon(), {node: index for node, (index, _) in (await east.rows(domain)).items()}
    assert shown["n0"] == found.agent.index == 1
    await east.delete_pod(domain, "n1")
    await until(lambda: slots(found)[0].startswith(FREE_SLOT_ADDRESS))
    assert (found.agent.index, found.daemon()["pid"]) == (1, first["pid"]), "the lower free index moves no daemon"
    await east.create_pod(domain, "late", "10.0.0.50")
    await east.create_pod(domain, "waits", "10.0.0.51")
    others = {node: index for node, index in shown.items() if node not in ("n0", "n1")} | {"late": 0}
    await until_shown(east, domain, others | {"n0": 1})

    await east.release(domain, "n0")
    await until_shown(east, domain, others | {"waits": 1})
    await until(lambda: not is_running(first["pid"]))
    assert found.agent.index is None, "a daemon does not run with the index of another node"

    await east.delete_pod(domain, "n5")
    await until_shown(east, domain, {n: i for n, i in others.items() if n != "n5"} | {"waits": 1, "n0": shown["n5"]})
    await until(lambda: found.daemon()["pid"] != first["pid"])
    assert found.agent.index == shown["n5"]
    await asyncio.sleep(6.0)
    assert found.daemon()["signals"] == 0, "the new process read its index and its peers when it started"


async def test_31_a_removal_needs_no_signal_and_changes_within_five_seconds_need_one(east: AgentCluster) -> None:
    domain = await east.create_domain("cd")
    found = await east.start_agent(domain, "n0", "10.0.0.1")
    began_s = time.monotonic()
    for number in range(1, 5):
        await east.create_pod(domain, f"n{number}", f"10.0.0.{number + 1}")
    addresses = {number: f"10.0.0.{number + 1}" for number in range(5)}
    await until(lambda: slots(found) == mapping(domain, addresses))
    await until(lambda: found.daemon()["signals"] >= 1)
    more_windows = int((time.monotonic() - began_s) * 1_000 / SIGNAL_INTERVAL_MS)
    await asyncio.sleep(6.0)  # the signal at the end of the window, if any, has been sent
    formed = found.signals_sent
    assert formed <= 2 + more_windows, "the first change, and all later ones of each window together"
    await east.delete_pod(domain, "n4")
    await until(lambda: slots(found) == mapping(domain, {n: a for n, a in addresses.items() if n != 4}))
    await asyncio.sleep(6.0)
    assert found.signals_sent == formed, "peers that left need no signal"
    await east.delete_pod(domain, "n1")
    await east.create_pod(domain, "n1", "10.0.9.2")
    await until(lambda: "10.0.9.2" in found.hosts.read_text())
    await until(lambda: found.signals_sent == formed + 1)


async def test_32_the_hosts_file_is_replaced_whole_and_does_not_grow(east: AgentCluster) -> None:
    """Each change is a new pod of the second node, with another address."""
    domain = await east.create_domain("cd")
    found = await east.start_agent(domain, "n0", "10.0.0.1")
    found.hosts.write_text("127.0.0.1 localhost\n" + found.hosts.read_text() + "10.9.9.9 gateway # by hand\n")
    await east.create_pod(domain, "n1", "10.0.1.1")
    torn: list[str] = []

    async def read_often() -> None:
        while True:
            lines = found.hosts.read_text().splitlines()
            if len([line for line in lines if dns_name(domain, 0)[:-4] in line]) != SLOTS:
                torn.append("\n".join(lines))
            await asyncio.sleep(0)

    reader = asyncio.create_task(read_often())
    for number in range(CHANGES):
        await east.delete_pod(domain, "n1")
        await east.create_pod(domain, "n1", f"10.0.2.{number + 1}")
        if number % 20 == 19:
            last = f"10.0.2.{number + 1}"
            await until(lambda last=last: slots(found) == mapping(domain, {0: "10.0.0.1", 1: last}))  # type: ignore[misc]
            lines = found.hosts.read_text().splitlines()
            assert lines.count("127.0.0.1 localhost") == 2
            assert lines.count("10.9.9.9 gateway # by hand") == 1
            assert len(lines) == SLOTS + 4, "one header, eighteen slots, three lines of others"
    reader.cancel()
    assert not torn
