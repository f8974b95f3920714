"""The part of a Kubernetes edge that reads objects of DPF's kinds, and what other programs own, in the source cluster
and in its DPU clusters, and that writes what follows from them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from commands.kubernetes.kind_watches import KindWatches, WatchedKind
from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.observation_edge import ForeignHandler, ObservationEdge
from commands.kubernetes.pull_secrets import PullSecretWatches
from commands.kubernetes.resource_edge import STATED_KINDS, ResourceEdge
from deploy.composition.dpu_clusters import ConnectCluster, DpuClusters, watched
from drivers.kubernetes.cluster_connections import ClusterConnections
from drivers.kubernetes.credentials import CredentialDriver
from drivers.kubernetes.resources.driver import ResourceDriver
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.kubernetes.foreign.kinds import IN_SOURCE_CLUSTER
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import Report
from projections.kubernetes.resources.live_object import LiveObject
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import Custom
from schemas.resources.kinds import Kind


class ResourceEdges:
    """The objects of one source cluster and its DPU clusters, while `run` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        source: str,
        connect: ConnectCluster,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        report: Report,
    ) -> None:
        self.source = source
        self.connections = ClusterConnections()
        self.observations = ObservationEdge(replica, ranks, source, now_ms=now_ms, rng=rng)
        self.resources = ResourceEdge(replica, ranks, self.observations, now_ms=now_ms, rng=rng, report=report)
        self.driver = ResourceDriver(
            replica,
            ranks,
            replica.partition_for(RESOURCES, source),
            source,
            connections=self.connections,
            open_watch=self._open_watch,
            now_ms=now_ms,
            rng=rng,
            report=report,
        )
        self.credentials = CredentialDriver(
            replica, ranks, source, connections=self.connections, now_ms=now_ms, rng=rng
        )
        self.kinds: KindWatches | None = None
        self.clusters: DpuClusters | None = None
        self.pull_secrets: PullSecretWatches | None = None
        self._connect = connect
        self._rng = rng

    @property
    def watches(self) -> Mapping[str, ListWatch[Any]]:
        """The list-watches of the source cluster, by the plural of their kind; those of Secrets with their namespace,
        too."""
        found = dict(self.kinds.watches) if self.kinds is not None else {}
        secrets = self.pull_secrets.watches if self.pull_secrets is not None else {}
        return found | {f"secrets.{namespace}": watch for namespace, watch in secrets.items()}

    def attach(self, api: KubernetesApi) -> None:
        """Use this connection to the source cluster."""
        kinds = [*self._stated(api), *self._foreign(api)]
        self.kinds = KindWatches(api, kinds, source=self.source, rng=self._rng)
        self.clusters = DpuClusters(
            api, self._connect, self.connections, self.resources, self.observations, rng=self._rng
        )
        self.pull_secrets = PullSecretWatches(api, self.resources, self.observations, rng=self._rng)
        self.connections.add(self.source, api)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.resources.run())
            tasks.create_task(self.observations.run())
            tasks.create_task(self.driver.run())
            tasks.create_task(self.credentials.run())
            for part in (self.kinds, self.clusters, self.pull_secrets):
                if part is not None:
                    tasks.create_task(part.run())

    def _open_watch(
        self, api: KubernetesApi, path: str, cache: ObjectCache[LiveObject], selector: str
    ) -> ListWatch[LiveObject]:
        return ListWatch(api, path, LiveObject, cache, rng=self._rng, label_selector=selector, source=self.source)

    def _stated(self, api: KubernetesApi) -> Iterator[WatchedKind]:
        for kind in STATED_KINDS:
            yield WatchedKind(kind.api_version, kind.plural, partial(self._list_watch, api, kind))

    def _list_watch(self, api: KubernetesApi, kind: Kind) -> ListWatch[Any]:
        handler = self.resources.handler(kind)
        return ListWatch(api, kind.path(), Custom, handler, rng=self._rng, versions=handler, source=self.source)

    def _foreign(self, api: KubernetesApi) -> Iterator[WatchedKind]:
        for kind in IN_SOURCE_CLUSTER:
            handler = ForeignHandler(self.observations, self.source, kind.name, kind.observe)
            yield watched(api, kind, handler, source=self.source, rng=self._rng)
