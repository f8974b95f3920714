"""The cliques of one ComputeDomain, formed by daemons on a real API server while this process observes the objects.

Every daemon watches its clique and its pod before the start, and then labels its pod and claims, all at once. The
bench is the kubelet: a pod is ready half a second to two seconds after its node has an index, which is the time that
IMEX takes to start. All daemons run in this process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple, TypeAlias

import msgspec

from commands.kubernetes.list_watch import ListWatch
from drivers.kubernetes.client import HttpApi
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.kubernetes.compute_domains import READY, CliqueObject
from schemas.kubernetes.objects import Metadata
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL
from tests.bench.api_server_costs import Costs, costs
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create
from tests.support.kubernetes.upstream_daemon import MAX_NODES, UpstreamDaemon

MakeDaemon: TypeAlias = Callable[..., UpstreamDaemon]
PATIENCE_S = 300.0
IMEX_S = 0.5, 2.0
AT_ONCE = 32


class Formed(NamedTuple):
    """One formation: times since the start, and what it cost."""

    claimed_s: float
    after_labels_s: float
    """From the label of the last pod to the last index."""
    ready_s: float
    costs: Costs
    claim_writes: int
    """Writes of cliques with an effect until all indices were shown."""
    denied: int
    """Writes that daemons without the right attempted: the API server does not count them among its requests."""
    duplicates: int
    """Two nodes with one index in one version of an object, over all versions."""
    moves: int
    """Changes of the index of a running daemon."""


class Observer:
    """The handler of a watch of all cliques: when each node had its index, and what was wrong in between."""

    def __init__(self, nodes: int) -> None:
        self.claimed = asyncio.Event()
        self.ready = asyncio.Event()
        self.claimed_s = self.ready_s = 0.0
        self.duplicates = self.moves = 0
        self.on_claim: Callable[[str], None] = lambda node: None
        self._nodes = nodes
        self._index: dict[str, int | None] = {}
        self._unique: dict[str, set[str]] = {}
        self._ready: dict[str, set[str]] = {}

    def saw(self, item: CliqueObject) -> None:
        rows, name, now_s = item.daemons or [], item.metadata.name, asyncio.get_running_loop().time()
        taken = Counter(row.index for row in rows)
        self.duplicates += sum(count - 1 for count in taken.values())
        self._unique[name] = {row.node_name for row in rows if taken[row.index] == 1}
        self._ready[name] = {row.node_name for row in rows if row.status == READY}
        for row in rows:
            known = self._index.get(row.node_name)
            self.moves += known is not None and known != row.index
            self._index[row.node_name] = row.index
            if known is None:
                self.on_claim(row.node_name)
        if not self.claimed.is_set() and sum(map(len, self._unique.values())) == self._nodes:
            self.claimed_s = now_s
            self.claimed.set()
        if not self.ready.is_set() and sum(map(len, self._ready.values())) == self._nodes:
            self.ready_s = now_s
            self.ready.set()


@asynccontextmanager
async def connect_many(cluster: ControlPlane, user: str) -> AsyncIterator[KubernetesApi]:
    """A connection of a user without a limit on sockets: each watch holds one."""
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 0

    async def load() -> None:
        await config.load_kube_config(str(cluster.kubeconfig(user)), client_configuration=configuration)

    await load()
    async with client.ApiClient(configuration) as api:
        yield HttpApi(api, load, "")


async def form(
    cluster: ControlPlane, api: KubernetesApi, make: MakeDaemon, namespace: str, nodes: int, *, rng: Random
) -> Formed:
    """Form the cliques of a new domain with so many nodes, 18 in each, and remove them again."""
    domain, name = await _create_domain(api, namespace, nodes, rng)
    pods = await _create_pods(api, namespace, domain, nodes, name)
    start, seen = asyncio.Event(), Observer(nodes)
    pods_path, path = f"/api/v1/namespaces/{namespace}/pods", COMPUTE_DOMAIN_CLIQUE.path(namespace)
    cache: ObjectCache[CliqueObject] = ObjectCache(lambda item: item.metadata.name)
    cache.subscribe(lambda item: seen.saw(item) if item.metadata.name.startswith(domain) else None)
    daemons = [
        make(pod, node, address, clique=_clique(number), rng=Random(rng.getrandbits(64)), start=start)
        for number, (node, address, pod) in enumerate(pods)
    ]
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        kubelet = _Kubelet(api, namespace, {node: pod for node, _, pod in pods}, tasks, rng)
        seen.on_claim = kubelet.start_imex
        running = [tasks.create_task(ListWatch(api, path, CliqueObject, cache, rng=rng).run())]
        running += [tasks.create_task(daemon.run()) for daemon in daemons]
        while not (cache.is_complete and all(daemon.is_listed for daemon in daemons)):
            await asyncio.sleep(0.05)
        before = await costs(cluster, COMPUTE_DOMAIN_CLIQUE.plural)
        # One idle connection for each daemon, as over HTTP/2: else each writes after a TLS handshake of this process.
        warm = (daemon.api.get(pods_path, {"limit": "1"}) for daemon in daemons)
        await asyncio.gather(*warm, return_exceptions=True)  # an overloaded server has opened the connection, too
        began_s = asyncio.get_running_loop().time()
        start.set()
        await seen.claimed.wait()
        claim_writes = (await costs(cluster, COMPUTE_DOMAIN_CLIQUE.plural)).since(before).count("2")
        await seen.ready.wait()
        await asyncio.sleep(0.5)  # writes that were not needed
        spent = (await costs(cluster, COMPUTE_DOMAIN_CLIQUE.plural)).since(before)
        for task in running:
            task.cancel()
    labelled_s = max(daemon.labelled_s for daemon in daemons)
    await _remove(api, namespace, name, domain)
    times = seen.claimed_s - began_s, seen.claimed_s - labelled_s, seen.ready_s - began_s
    denied = sum(count for daemon in daemons for (_, status), count in daemon.answers.items() if status == 403)
    return Formed(*times, spent, claim_writes, denied, seen.duplicates, seen.moves)


class _Kubelet:
    """Sets the pod of a node ready after its IMEX has started."""

    def __init__(
        self, api: KubernetesApi, namespace: str, pods: dict[str, Metadata], tasks: asyncio.TaskGroup, rng: Random
    ) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pods = pods
        self._tasks = tasks
        self._rng = rng

    def start_imex(self, node: str) -> None:
        self._tasks.create_task(self._set_ready(self._pods[node], self._rng.uniform(*IMEX_S)))

    async def _set_ready(self, pod: Metadata, after_s: float) -> None:
        await asyncio.sleep(after_s)
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self._api.patch(f"{self._path}/{pod.name}/status", status, "merge")


def _clique(number: int) -> str:
    return f"9f410827-489f-46fd-8203-51266ca08eb7.{number // MAX_NODES}"


async def _create_domain(api: KubernetesApi, namespace: str, nodes: int, rng: Random) -> tuple[str, str]:
    name = f"cd-{rng.getrandbits(40):010x}"
    body = {
        "apiVersion": COMPUTE_DOMAIN.api_version,
        "kind": COMPUTE_DOMAIN.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"numNodes": nodes, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}},
    }
    return (await create(api, COMPUTE_DOMAIN.path(namespace), body))["metadata"]["uid"], name


async def _create_pods(
    api: KubernetesApi, namespace: str, domain: str, nodes: int, prefix: str
) -> list[tuple[str, str, Metadata]]:
    """Node, address and pod of each daemon; its pod runs, and is not ready."""
    path, slots = f"/api/v1/namespaces/{namespace}/pods", asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> tuple[str, str, Metadata]:
        node, address = f"{prefix}-n{number:04}", f"10.0.{number >> 8}.{number & 255}"
        spec: dict[str, Any] = {"nodeName": node, "containers": [{"name": "daemon", "image": "example.com/daemon"}]}
        meta = {"name": f"daemon-{node}", "labels": {DOMAIN_LABEL: domain}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        async with slots:
            made = await create(api, path, {"metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}})
            await api.patch(f"{path}/{meta['name']}/status", {"status": status}, "merge")
        return node, address, msgspec.convert(made["metadata"], Metadata, strict=False)

    return [*await asyncio.gather(*map(one, range(nodes)))]


async def _remove(api: KubernetesApi, namespace: str, name: str, domain: str) -> None:
    """Delete the domain, its pods and its cliques. Returns when a plane that serves the namespace made none again."""
    path = COMPUTE_DOMAIN.path(namespace, name)
    await api.delete(path, uid=domain)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await _delete_all(api, pods)
    cliques = COMPUTE_DOMAIN_CLIQUE.path(namespace)
    is_empty = 0
    while is_empty < 2:
        await _delete_all(api, cliques)
        await asyncio.sleep(0.2)
        left = msgspec.json.decode(await api.get(cliques, {"limit": "1"}))["items"]
        is_empty = 0 if left else is_empty + 1


async def _delete_all(api: KubernetesApi, path: str) -> None:
    """Delete the objects of a collection, one by one."""
    found = msgspec.json.decode(await api.get(path))["items"]
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: dict[str, Any]) -> None:
        async with slots:
            try:
                await api.delete(f"{path}/{item['metadata']['name']}", uid=item["metadata"]["uid"])
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise

    await asyncio.gather(*map(one, found))
