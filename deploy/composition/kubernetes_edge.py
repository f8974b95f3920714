"""The Kubernetes edge of a process: the connection to one source cluster, and the parts that watch and write it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from commands.fold_versions import FoldVersions, SupportedVersions
from commands.kubernetes.list_watch import Handler, HandlerPair, ListWatch
from commands.kubernetes.node_edge import NodeEdge
from commands.kubernetes.node_facts import NodeRules
from commands.kubernetes.object_edge import ObjectEdge
from commands.kubernetes.pod_edge import PodEdge
from commands.kubernetes.users import UserNames
from deploy.composition.dpu_clusters import ConnectCluster
from deploy.composition.resource_edges import ResourceEdges
from drivers.kubernetes.client import connect_with as connect_cluster
from drivers.kubernetes.clique_targets import CliqueSources
from drivers.kubernetes.clique_writer import CliqueWriter
from drivers.kubernetes.event_writer import EventWriter
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.status import StatusEdge
from drivers.kubernetes.writer import Writer
from eventstore.backoff import backoff_ceiling
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.status import SourceStatus
from projections.kubernetes.clique_objects import Mode
from projections.kubernetes.daemon_pods import DaemonPods
from projections.kubernetes.event_queue import EventQueue
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent, Report, ignore
from projections.kubernetes.statements import StatementTable
from projections.kubernetes.status_body import shortened
from projections.kubernetes.zone_notices import ZoneNotices
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject
from schemas.kubernetes.objects import Custom, Node, Pod
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL

ConnectKubernetes: TypeAlias = Callable[[], AbstractAsyncContextManager[KubernetesApi]]
"""Opens the connection to the API server."""

logger = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
RETRY_S = 1.0
RETRY_S_MAX = 30.0
_FAULT_MAX = 300
"""Maximum length of the fault of a source: beacons contain it."""
_LOGGED = frozenset((1, 10, 100, 1_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """The settings of the edge of one source cluster: the objects that it watches and writes."""

    nodes: NodeRules
    cliques: Mode | None = None
    """How the edge shares the objects of cliques with upstream's driver. With None, the edge ignores these objects."""
    driver_namespace: str = ""
    """The namespace of upstream's driver, with the daemon pods and the objects of cliques."""
    has_status: bool = False
    """Whether the edge reads objects of the plane's own kinds, and writes their status. Their definitions must be
    installed."""
    has_events: bool = True
    """Whether the edge writes Events about objects."""
    users: UserNames | None = None
    """The principals of the cluster's users. With None, the edge ignores specs and verdicts of people."""
    has_resources: bool = False
    """Whether the edge reads objects of DPF's kinds, and what other programs make of them in this cluster and in its
    DPU clusters."""
    requests_per_second: float = 50.0
    """Maximum number of writes to the API server per second, on average."""


def _is_current(watch: ListWatch[Any]) -> bool:
    return watch.is_current


class KubernetesEdge:
    """Watches and writes one source cluster while `run` runs. The parts exist once the connection is open."""

    def __init__(
        self,
        connect: ConnectKubernetes,
        replica: Replica,
        ranks: Ranks,
        settings: EdgeSettings,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        supports: SupportedVersions | None = None,
        connect_cluster: ConnectCluster = connect_cluster,
    ) -> None:
        self.source = settings.nodes.source
        self.events = EventQueue()
        self.event_writer: EventWriter | None = None
        self._report: Report = self._queue_event if settings.has_events else ignore
        self._notices = ZoneNotices()
        self.nodes = NodeEdge(
            replica, settings.nodes, now_ms=now_ms, rng=rng, report=self._report, notices=self._notices
        )
        self.resources: ResourceEdges | None = None
        if settings.has_resources:
            self.resources = ResourceEdges(
                replica, ranks, self.source, connect_cluster, now_ms=now_ms, rng=rng, report=self._report
            )
        self.writer: Writer | None = None
        self.pods: PodEdge | None = None
        self.clique_writer: CliqueWriter | None = None
        self.status: StatusEdge | None = None
        self.objects: ObjectEdge | None = None
        self.watches: dict[str, ListWatch[Any]] = {}
        """List-watches by the plural of their resource."""
        self._connect = connect
        self._replica = replica
        self._ranks = ranks
        self._versions = FoldVersions(replica, supports, now_ms)
        self._settings = settings
        self._budget = RequestBudget(settings.requests_per_second)
        self._now_ms = now_ms
        self._rng = rng
        self._fault = ""
        """Why the connection is not open."""

    async def run(self) -> None:
        """Watch and write until cancelled."""
        await self._replica.ready()  # the folds have the version of the last list
        async with AsyncExitStack() as stack:
            api = await self._connected(stack)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            handler: Handler[Node] = self.nodes
            if self.resources is not None:
                self.resources.attach(api)
                handler = HandlerPair(self.nodes, self.resources.resources.node_handler())
            self.watches["nodes"] = nodes = ListWatch(
                api, NODES, Node, handler, rng=self._rng, versions=self.nodes, source=self.source
            )
            self.nodes.list_again = nodes.list_again
            self.writer = Writer(api, self._budget, rng=self._rng, source=self.source)
            if self._settings.has_events:
                self.event_writer = EventWriter(api, self._budget, self.events, rng=self._rng, source=self.source)
            if self._settings.cliques is not None:
                self._add_cliques(api, self.writer, self._settings.cliques)
            if self._settings.has_status:
                self._add_status(api, self.writer)
            for part in self._parts():
                tasks.create_task(part.run())

    async def _connected(self, stack: AsyncExitStack) -> KubernetesApi:
        """Open the connection. The process has checked the kubeconfig at its start, but the file may have been replaced
        since, or its program may fail: this is tried again, and the edges of other clusters go on."""
        failures = 0
        while True:
            try:
                api = await stack.enter_async_context(self._connect())
            except KubeconfigInvalid as error:
                self._fault = str(error)
                pause_s = backoff_ceiling(failures, RETRY_S, RETRY_S_MAX) * self._rng.uniform(0.5, 1.0)
                failures += 1
                if failures in _LOGGED:
                    about = {"source": self.source, "pause_s": round(pause_s, 1)}
                    logger.warning("source cluster not connected, retrying: %s", error, extra=about)
                await asyncio.sleep(pause_s)
            else:
                self._fault = ""
                return api

    def status_of_source(self) -> SourceStatus:
        """The state of the edge, for status pages."""
        watch, nodes = self.watches.get("nodes"), self.nodes
        is_watched = watch is not None and watch.is_current
        others = self.resources.watches.values() if self.resources is not None else ()
        faults = (each.fault for each in filter(None, (watch, *others)))
        fault = self._fault or next(filter(None, faults), "")
        return SourceStatus(
            self.source,
            is_watched,
            nodes.count,
            len(nodes.refused),
            nodes.retained,
            shortened(fault, _FAULT_MAX),
            sum(self.objects_ahead().values()),
        )

    def objects_ahead(self) -> dict[str, int]:
        """Number of objects with a later position than the log, by the plural of their resource."""
        found = self.status.objects_ahead() if self.status is not None else {}
        if self.clique_writer is not None:
            found[COMPUTE_DOMAIN_CLIQUE.plural] = self.clique_writer.cliques.ahead.count
        return found

    def _parts(self) -> Iterator[Any]:
        yield self.nodes
        yield from self.watches.values()
        yield from filter(
            None,
            (
                self.writer,
                self.pods,
                self.clique_writer,
                self.status,
                self.objects,
                self.event_writer,
                self.resources,
            ),
        )

    def _queue_event(self, event: ObjectEvent) -> None:
        self.events.put(event, self._now_ms())

    def _add_status(self, api: KubernetesApi, writer: Writer) -> None:
        statements, now_ms, rng, source = StatementTable(), self._now_ms, self._rng, self.source
        users = self._settings.users or UserNames(self.source)
        self.objects = ObjectEdge(
            self._replica,
            source,
            api,
            users,
            statements,
            versions=self._versions,
            now_ms=now_ms,
            rng=rng,
            report=self._report,
        )
        caches = self.objects.caches
        self.status = StatusEdge(
            self._replica,
            self._ranks,
            writer,
            caches,
            statements=statements,
            notices=self._notices,
            report=self._report,
            now_ms=now_ms,
        )
        for kind, cache in caches.items():
            watch = self.watches[kind.plural] = ListWatch(api, kind.path(), Custom, cache, rng=rng, source=source)
            self.status.follow(kind.plural, partial(_is_current, watch))

    def _add_cliques(self, api: KubernetesApi, writer: Writer, mode: Mode) -> None:
        namespace = self._settings.driver_namespace
        pods_path = f"/api/v1/namespaces/{namespace}/pods"
        pods = DaemonPods()
        cliques: ObjectCache[CliqueObject] = ObjectCache(lambda item: item.metadata.name)
        domains: ObjectCache[DomainObject] = ObjectCache(lambda item: item.metadata.uid)
        self.pods = PodEdge(
            self._replica,
            self.source,
            api,
            pods_path,
            pods=pods,
            cliques=cliques,
            domains=domains,
            mode=mode,
            now_ms=self._now_ms,
            rng=self._rng,
            report=self._report,
        )
        sources = CliqueSources(self._replica, namespace, pods, cliques, domains, mode, self.source)
        self.clique_writer = CliqueWriter(sources, self._ranks, writer)
        clique_path, domain_path = COMPUTE_DOMAIN_CLIQUE.path(namespace), COMPUTE_DOMAIN.path()
        watch = partial(ListWatch, api, rng=self._rng, source=self.source)
        self.watches |= {
            "pods": watch(pods_path, Pod, pods, label_selector=DOMAIN_LABEL),
            COMPUTE_DOMAIN_CLIQUE.plural: watch(clique_path, CliqueObject, cliques),
            COMPUTE_DOMAIN.plural: watch(domain_path, DomainObject, domains),
        }
