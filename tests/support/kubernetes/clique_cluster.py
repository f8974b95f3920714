"""A cluster with the driver's kinds and daemon pods, a plane beside it, and upstream's daemons that a test starts.

It runs on the simulated API server and on a real one alike. The test is the kubelet: it makes
pods and sets their status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.pod_edge import PodEdge
from drivers.kubernetes.clique_targets import CliqueSources
from drivers.kubernetes.clique_writer import CliqueWriter
from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.writer import Writer
from eventstore.log import CLIQUES
from eventstore.replicas.replica import Answer, Replica
from projections.cliques.state import CliquesState
from projections.fold_states import FoldStates
from projections.kubernetes.clique_objects import Mode
from projections.kubernetes.daemon_pods import DaemonPods
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent
from schemas.events import Event
from schemas.kubernetes.api import CONFLICT, NOT_FOUND, ApiError, KubernetesApi
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject
from schemas.kubernetes.objects import Metadata, Pod
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL
from tests.support.kubernetes.requests import create, get
from tests.support.kubernetes.upstream_daemon import UpstreamDaemon
from tests.support.memory_plane import Plane

CLIQUE = "9f410827-489f-46fd-8203-51266ca08eb7.32766"
REPLICA = "r1"
SOURCE = "east"


class DaemonPodMade(NamedTuple):
    """A pod that a test made."""

    metadata: Metadata
    node: str
    address: str


class CliqueCluster:
    """One driver namespace of an API server, and the edge of a plane that serves it."""

    def __init__(self, api: KubernetesApi, namespace: str, plane: Plane, rng: Random) -> None:
        self.api = api
        self.daemon_api = api
        """The API server as upstream's daemons reach it."""
        self.namespace = namespace
        self.plane = plane
        self.rng = rng
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.daemons: dict[str, UpstreamDaemon] = {}
        self.pods: dict[str, DaemonPodMade] = {}
        """The newest pod that the test made of each node."""
        self.reported: list[ObjectEvent] = []
        self.edge: PodEdge
        self.requests: Writer
        self.writer: CliqueWriter
        self._tasks: list[asyncio.Task[None]] = []
        self._running: dict[str, asyncio.Task[None]] = {}
        self._made = 0

    @property
    def replica(self) -> Replica:
        return self.plane.replicas[REPLICA]

    # -- the plane

    def start_edge(self, mode: Mode = "assign") -> None:
        """Start an edge with empty caches, and its writer."""
        pods = DaemonPods()
        cliques: ObjectCache[CliqueObject] = ObjectCache(lambda item: item.metadata.name)
        domains: ObjectCache[DomainObject] = ObjectCache(lambda item: item.metadata.uid)
        self.edge = PodEdge(
            self.replica,
            SOURCE,
            self.api,
            self.pods_path,
            pods=pods,
            cliques=cliques,
            domains=domains,
            mode=mode,
            now_ms=self.plane.now_ms,
            rng=self.plane.rng(),
            report=self.reported.append,
        )
        sources = CliqueSources(self.replica, self.namespace, pods, cliques, domains, mode)
        self.requests = Writer(self.api, RequestBudget(50.0), rng=self.plane.rng())
        self.writer = CliqueWriter(sources, self.plane.ranks(REPLICA), self.requests)
        clique_path = COMPUTE_DOMAIN_CLIQUE.path(self.namespace)
        domain_path = COMPUTE_DOMAIN.path(self.namespace)
        self._tasks = [
            asyncio.ensure_future(work)
            for work in (
                ListWatch(self.api, self.pods_path, Pod, pods, rng=self.plane.rng(), label_selector=DOMAIN_LABEL).run(),
                ListWatch(self.api, clique_path, CliqueObject, cliques, rng=self.plane.rng()).run(),
                ListWatch(self.api, domain_path, DomainObject, domains, rng=self.plane.rng()).run(),
                self.edge.run(),
                self.requests.run(),
                self.writer.run(),
            )
        ]

    async def stop_edge(self) -> None:
        """End the edge and its writer."""
        await _ended(self._tasks)
        self._tasks = []

    async def stop(self) -> None:
        """End everything, daemons by a crash."""
        await _ended([*self._tasks, *self._running.values()])
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def state(self, domain: str) -> CliquesState:
        return FoldStates(self.replica).cliques_at(self.replica.partition_for(CLIQUES, domain))

    def folded(self, domain: str, clique: str = CLIQUE) -> dict[str, int]:
        """Indices by node, in the fold."""
        found = self.state(domain).cliques.get(f"{domain}/{clique}")
        return {node: index for index, node in found.holders.items()} if found is not None else {}

    async def submit(self, domain: str, event: Event) -> Answer:
        partition = self.replica.partition_for(CLIQUES, domain)
        return await self.replica.submit(partition, domain.encode(), event, timeout_s=30.0)

    # -- the cluster

    async def create_domain(self, name: str = "cd", num_nodes: int = 0) -> str:
        """A ComputeDomain; returns its uid."""
        body = {
            "apiVersion": COMPUTE_DOMAIN.api_version,
            "kind": COMPUTE_DOMAIN.name,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"numNodes": num_nodes, "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}}},
        }
        made = await create(self.api, COMPUTE_DOMAIN.path(self.namespace), body)
        uid: str = made["metadata"]["uid"]
        return uid

    async def delete_domain(self, name: str = "cd") -> None:
        path = COMPUTE_DOMAIN.path(self.namespace, name)
        await self.api.delete(path, uid=(await get(self.api, path))["metadata"]["uid"])

    async def domain_status(self, name: str = "cd") -> dict[str, Any]:
        found: dict[str, Any] = (await get(self.api, COMPUTE_DOMAIN.path(self.namespace, name))).get("status", {})
        return found

    async def create_pod(
        self,
        node: str,
        domain: str,
        address: str,
        *,
        clique: str | None = CLIQUE,
        is_ready: bool = False,
        finalizers: Sequence[str] = (),
    ) -> DaemonPodMade:
        """A daemon pod with an address; without a clique its daemon has not labelled it yet."""
        self._made += 1
        labels = {DOMAIN_LABEL: domain} | ({CLIQUE_LABEL: clique} if clique is not None else {})
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"computedomain-daemon-{node}-{self._made}",
                "labels": labels,
                "finalizers": list(finalizers),
            },
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "daemon", "image": "example.com/daemon"}],
            },
        }
        made = await create(self.api, self.pods_path, body)
        pod = DaemonPodMade(msgspec.convert(made["metadata"], Metadata, strict=False), node, address)
        self.pods[node] = pod
        await self.set_status(node, is_ready=is_ready)
        return pod

    async def set_status(self, node: str, *, is_ready: bool) -> None:
        """Set the status of a node's newest pod, as its kubelet does."""
        pod = self.pods[node]
        conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
        status: dict[str, Any] = {"phase": "Running", "conditions": conditions}
        if pod.address:
            status |= {"podIP": pod.address, "podIPs": [{"ip": pod.address}]}
        path = f"{self.pods_path}/{pod.metadata.name}"
        await self.api.patch(f"{path}/status", {"status": status}, "merge")

    async def delete_pod(self, node: str) -> None:
        """Delete a node's newest pod; its daemon crashes."""
        pod = self.pods.pop(node)
        await self.crash(node)
        await self.api.delete(f"{self.pods_path}/{pod.metadata.name}", uid=pod.metadata.uid)

    async def clique(self, domain: str, clique: str = CLIQUE) -> dict[str, Any] | None:
        """The object of a clique."""
        try:
            return await get(self.api, COMPUTE_DOMAIN_CLIQUE.path(self.namespace, f"{domain}.{clique}"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def rows(self, domain: str, clique: str = CLIQUE) -> dict[str, dict[str, Any]]:
        """Rows by node."""
        found = await self.clique(domain, clique)
        return {row["nodeName"]: row for row in (found or {}).get("daemons") or []}

    async def indices(self, domain: str, clique: str = CLIQUE) -> dict[str, int]:
        """Indices by node, as the object shows them."""
        return {node: row["index"] for node, row in (await self.rows(domain, clique)).items()}

    async def write_rows(self, domain: str, *rows: dict[str, Any], clique: str = CLIQUE) -> None:
        """Write rows as somebody else, beside those that are there; a row of a node replaces the former. A write that
        another one has overtaken is repeated."""
        while not await self._are_written(domain, rows, clique):
            pass

    async def _are_written(self, domain: str, rows: Iterable[dict[str, Any]], clique: str) -> bool:
        """Write rows once. Returns whether nobody else wrote meanwhile."""
        found = await self.clique(domain, clique)
        if found is None:
            metadata = {"name": f"{domain}.{clique}", "namespace": self.namespace}
            body = {"apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version, "kind": COMPUTE_DOMAIN_CLIQUE.name}
            await self.api.create(
                COMPUTE_DOMAIN_CLIQUE.path(self.namespace), {**body, "metadata": metadata, "daemons": list(rows)}
            )
            return True
        merged = {row["nodeName"]: row for row in [*(found.get("daemons") or []), *rows]}
        path = COMPUTE_DOMAIN_CLIQUE.path(self.namespace, f"{domain}.{clique}")
        try:
            await self.api.replace(path, {**found, "daemons": list(merged.values())})
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return False
        return True

    # -- upstream's daemons

    async def start_daemon(
        self, node: str, domain: str, address: str, clique: str = CLIQUE, *, is_ready: bool = False
    ) -> UpstreamDaemon:
        """A new pod of a node, and upstream's daemon in it."""
        pod = await self.create_pod(node, domain, address, clique=None, is_ready=is_ready)
        return self.run_daemon(node, pod, clique)

    def run_daemon(self, node: str, pod: DaemonPodMade, clique: str = CLIQUE) -> UpstreamDaemon:
        """Upstream's daemon in an existing pod."""
        seed = Random(self.rng.getrandbits(64))
        daemon = UpstreamDaemon(self.daemon_api, pod.metadata, node, pod.address, clique=clique, rng=seed)
        self.daemons[node] = daemon
        self._running[node] = asyncio.ensure_future(daemon.run())
        return daemon

    async def crash(self, node: str) -> None:
        """End a node's daemon without its clean-up."""
        task = self._running.pop(node, None)
        if task is not None:
            await _ended([task])

    # -- waits

    async def until(self, holds: Callable[[], Awaitable[bool]], *, timeout_s: float = 90.0) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(timeout_s):
            while not await holds():
                await asyncio.sleep(0.05)

    async def until_daemons_know(self) -> None:
        """Wait until each daemon has seen its row: the object has it before their watches show it."""

        async def holds() -> bool:
            return all(daemon.indices for daemon in self.daemons.values())

        await self.until(holds)

    async def until_indices(
        self, domain: str, wanted: dict[str, int], clique: str = CLIQUE, *, timeout_s: float = 90.0
    ) -> None:
        """Wait until the object and the fold have exactly these indices."""

        async def holds() -> bool:
            return await self.indices(domain, clique) == wanted == self.folded(domain, clique)

        try:
            await self.until(holds, timeout_s=timeout_s)
        except TimeoutError:
            shown, folded = await self.indices(domain, clique), self.folded(domain, clique)
            raise AssertionError(f"wanted {wanted}, shown {shown}, folded {folded}") from None


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
