"""The connections to the DPU clusters of one source cluster, and what the plane observes in them.

A DPUCluster names the Secret with the kubeconfig of its cluster. The Secret is read when the connection is opened, and
again when the cluster refuses the credentials or is away for a minute: a rotated kubeconfig needs no restart, and an
idle connection needs no request. The plane observes the phase of a DPUCluster, its version and its number of Nodes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from commands.kubernetes.kind_watches import KindWatches, WatchedKind
from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.observation_edge import ForeignHandler, ObservationEdge
from commands.kubernetes.resource_facts import ResourceFacts
from drivers.kubernetes.client import ReadKubeconfig
from drivers.kubernetes.cluster_connections import ClusterConnections
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.secret_kubeconfig import SecretMissing, read_secret_kubeconfig
from eventstore.backoff import backoff_ceiling
from projections.kubernetes.foreign.kind import ForeignKind, told
from projections.kubernetes.foreign.kinds import IN_DPU_CLUSTER
from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.resources.clusters import cluster_source
from projections.resources.kinds import DPU_CLUSTER
from projections.resources.state import ObjectId
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.kubernetes.objects import Custom
from schemas.resources.dpf.cluster import KAMAJI

logger = logging.getLogger(__name__)

ConnectCluster: TypeAlias = Callable[[ReadKubeconfig, str, str], AbstractAsyncContextManager[KubernetesApi]]
"""Opens a connection by a kubeconfig, its name, and the source of the objects in the cluster."""

CHECK_S = 1.0
"""Interval at which the state of the watches is read, which needs no request."""
AWAY_S = 10.0
"""Time without a watch after which a cluster is reported as not ready."""
RECONNECT_S = 60.0
"""Time without a watch after which the Secret is read again: the cluster may have moved."""
COUNT_S = 5.0
"""Minimum time between two reports of a changed number of Nodes."""
RETRY_S = 1.0
RETRY_S_MAX = 60.0
_LOGGED = frozenset((1, 10, 100, 1_000))


class _Spec(msgspec.Struct, frozen=True):
    type: str = ""
    kubeconfig: str = ""


class _Version(msgspec.Struct, frozen=True):
    git_version: str = msgspec.field(default="", name="gitVersion")


_spec = msgspec.json.Decoder(_Spec, strict=False)
_version = msgspec.json.Decoder(_Version)


class ClusterEntry(NamedTuple):
    """A DPUCluster, and the name of the Secret with its kubeconfig, empty if it names none."""

    at: ObjectId
    uid: str
    secret: str

    @property
    def source(self) -> str:
        return cluster_source(self.at.key)


def entry_of(facts: ResourceFacts) -> ClusterEntry:
    """How a DPUCluster is reached. Kamaji names the Secret after the cluster."""
    try:
        spec = _spec.decode(facts.spec)
    except msgspec.DecodeError:
        spec = _Spec()
    secret = spec.kubeconfig or (f"{facts.at.name}-admin-kubeconfig" if spec.type == KAMAJI else "")
    return ClusterEntry(facts.at, facts.uid, secret)


class StatedClusters(Protocol):
    """The DPUClusters of a source, as users state them."""

    @property
    def source(self) -> str: ...

    def objects(self, kind: str) -> Mapping[str, ResourceFacts]:
        """The objects of a kind by key."""
        ...

    def is_listed(self, kind: str) -> bool:
        """Whether an object that is missing does not exist."""
        ...

    def subscribe(self, kind: str, listener: Callable[[], None]) -> None:
        """Call a function after each change of an object of this kind."""
        ...


class DpuClusters:
    """Opens and closes the connections as DPUClusters come and go, while `run` runs."""

    def __init__(
        self,
        api: KubernetesApi,
        connect: ConnectCluster,
        connections: ClusterConnections,
        resources: StatedClusters,
        observations: ObservationEdge,
        *,
        rng: random.Random,
    ) -> None:
        self.clusters: dict[str, DpuCluster] = {}
        """The DPU clusters by the key of their DPUCluster."""
        self._api = api
        self._connect = connect
        self._connections = connections
        self._resources = resources
        self._observations = observations
        self._rng = rng
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work = asyncio.Event()
        resources.subscribe(DPU_CLUSTER, self._work.set)

    async def run(self) -> None:
        """Connect until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._work.wait()
                self._work.clear()
                wanted = {key: entry_of(facts) for key, facts in self._resources.objects(DPU_CLUSTER).items()}
                for key in [key for key in self.clusters if wanted.get(key) != self.clusters[key].entry]:
                    await self._end(key)
                for key in sorted(wanted.keys() - self.clusters.keys()):
                    self._begin(tasks, key, wanted[key])
                if self._resources.is_listed(DPU_CLUSTER):
                    self._forget_others({entry.source: key for key, entry in wanted.items()})

    def _forget_others(self, keys: Mapping[str, str]) -> None:
        """Remove what was observed of DPUClusters that were deleted, and in their clusters."""
        source = self._resources.source
        for other in self._observations.sources():
            if other.startswith(f"{source}.") and other not in keys:
                self._observations.remove_all(other)
        for at in self._observations.observed(source, DPU_CLUSTER):
            if at.key not in keys.values():
                self._observations.remove(at)

    def _begin(self, tasks: asyncio.TaskGroup, key: str, entry: ClusterEntry) -> None:
        made = DpuCluster(entry, self._api, self._connect, self._connections, self._observations, rng=self._rng)
        self.clusters[key] = made
        self._tasks[key] = tasks.create_task(made.run())

    async def _end(self, key: str) -> None:
        del self.clusters[key]
        task = self._tasks.pop(key)
        task.cancel()
        await asyncio.wait((task,))


class DpuCluster:
    """One DPU cluster: its connection, its watches, and what is reported of it, while `run` runs."""

    def __init__(
        self,
        entry: ClusterEntry,
        api: KubernetesApi,
        connect: ConnectCluster,
        connections: ClusterConnections,
        observations: ObservationEdge,
        *,
        rng: random.Random,
    ) -> None:
        self.entry = entry
        self.fault = "it is not connected yet"
        """Why the cluster is not ready; empty if it is."""
        self.watches: KindWatches | None = None
        self._api = api
        self._connect = connect
        self._connections = connections
        self._observations = observations
        self._rng = rng
        self._failures = 0
        self._nodes: ForeignHandler | None = None
        self._about: Mapping[str, object] = {}
        """The version of the cluster and its number of Nodes, as last known."""

    async def run(self) -> None:
        """Connect and watch until cancelled, across outages."""
        if not self.entry.secret:
            self._report("Pending", "spec.kubeconfig names no Secret")
            return
        while True:
            try:
                phase, why = "NotReady", await self._connected()
            except SecretMissing as error:
                phase, why = "Pending", str(error)
            except KubeconfigInvalid as error:
                phase, why = "Failed", str(error)
            except ApiError as error:
                phase, why = "NotReady", str(error)
            self._report(phase, why)
            await self._pause(why)

    async def _connected(self) -> str:
        """Open the connection and watch. Returns why the cluster is away. Raises ApiError and KubeconfigInvalid."""
        at, source = self.entry.at, self.entry.source
        read = partial(read_secret_kubeconfig, self._api, at.namespace, self.entry.secret)
        async with self._connect(read, f"Secret {at.namespace}/{self.entry.secret}", source) as api:
            try:
                version = _version.decode(await api.get("/version")).git_version
            except msgspec.DecodeError as error:
                raise ApiError(0, "Malformed", f"its version cannot be read: {error}") from error
            self._about = {**self._about, "version": version}
            self._connections.add(source, api)
            try:
                return await self._watch(api)
            finally:
                self._connections.remove(source, api)

    async def _watch(self, api: KubernetesApi) -> str:
        self.watches = KindWatches(api, [*self._kinds(api)], source=self.entry.source, rng=self._rng)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self.watches.run())
            why = await self._follow(self.watches)
            watching.cancel()
        return why

    async def _follow(self, watches: KindWatches) -> str:
        """Report the state of the cluster. Returns why its watch is away too long."""
        now_s = asyncio.get_running_loop().time
        seen_s, counted_s = now_s(), -COUNT_S
        while True:
            watch = watches.watches.get(CLUSTER_NODE.plural)
            if watch is not None and watch.is_current and self._nodes is not None:
                seen_s, self._failures = now_s(), 0
                if self.fault or now_s() >= counted_s + COUNT_S:
                    counted_s = now_s()
                    self._about = {**self._about, "nodes": self._nodes.count}
                    self._report("Ready", "")
            elif now_s() >= seen_s + AWAY_S:
                fault = watch.fault if watch is not None and watch.fault else "its Nodes cannot be listed"
                self._report("NotReady", fault)
                if now_s() >= seen_s + RECONNECT_S:
                    return fault
            await asyncio.sleep(CHECK_S)

    def _kinds(self, api: KubernetesApi) -> Iterator[WatchedKind]:
        for kind in IN_DPU_CLUSTER:
            handler = ForeignHandler(self._observations, self.entry.source, kind.name, kind.observe)
            if kind is CLUSTER_NODE:
                self._nodes = handler
            yield watched(api, kind, handler, source=self.entry.source, rng=self._rng)

    def _report(self, phase: str, why: str) -> None:
        self.fault = why
        is_ready = phase == "Ready"
        fields = {"ready": is_ready, "phase": phase, "message": told(why), **self._about}
        self._observations.put(self.entry.at, self.entry.uid, fields)

    async def _pause(self, why: str) -> None:
        pause_s = backoff_ceiling(self._failures, RETRY_S, RETRY_S_MAX) * self._rng.uniform(0.5, 1.0)
        self._failures += 1
        if self._failures in _LOGGED:
            about = {"cluster": self.entry.source, "pause_s": round(pause_s, 1)}
            logger.warning("DPU cluster not connected, retrying: %s", why, extra=about)
        await asyncio.sleep(pause_s)


def watched(
    api: KubernetesApi, kind: ForeignKind, handler: ForeignHandler, *, source: str, rng: random.Random
) -> WatchedKind:
    """The watch of a kind that other programs own."""

    def make() -> ListWatch[Any]:
        selector = kind.label_selector
        return ListWatch(
            api, kind.path, Custom, handler, rng=rng, label_selector=selector, versions=handler, source=source
        )

    return WatchedKind(kind.group_version, kind.plural, make)
