"""How a simulated process follows the DPU clusters of the source without Kubernetes: the parts of production, which
read the DPUClusters from the fold instead of a source cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from commands.kubernetes.observation_edge import ObservationEdge
from commands.kubernetes.resource_facts import ResourceFacts
from deploy.composition.dpu_clusters import DpuClusters
from drivers.kubernetes.cluster_connections import ClusterConnections
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.resources.kinds import DPU_CLUSTER
from projections.resources.state import LOCAL, ResourcesState, object_id
from schemas.kubernetes.api import KubernetesApi
from tests.simulation.cluster_servers import ClusterServers
from tests.simulation.network import Wire


class Part(Protocol):
    """A task of an instance."""

    async def run(self) -> None: ...


class LoggedDpuClusters:
    """The DPUClusters of the fold, in the form in which an edge has those of a source cluster."""

    source = LOCAL

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._partition = replica.partition_for(RESOURCES, LOCAL)
        self._listeners: list[Callable[[], None]] = []

    def objects(self, kind: str) -> Mapping[str, ResourceFacts]:
        state: ResourcesState = self._replica.state(self._partition)
        return {key: _facts(state, key) for key in state.of_kind(LOCAL, kind) if state.serves(key)}

    def is_listed(self, kind: str) -> bool:
        return True

    def subscribe(self, kind: str, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Tell the listeners of changes until cancelled."""
        await self._replica.ready()
        told: Mapping[str, ResourceFacts] | None = None
        while True:
            found = self.objects(DPU_CLUSTER)
            if found != told:
                told = found
                for listener in self._listeners:
                    listener()
            await self._replica.fold_waits.changed(self._partition)


class LoggedClusters:
    """The connections of an instance to the DPU clusters, while the work of `parts` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        servers: ClusterServers,
        wire: Wire,
        writer: str,
        *,
        now_ms: Callable[[], int],
        rng: Callable[[], random.Random],
    ) -> None:
        self._connections = ClusterConnections()
        self._unreachable = servers.unreachable(wire, writer)
        stated = LoggedDpuClusters(replica)
        observations = ObservationEdge(replica, ranks, LOCAL, now_ms=now_ms, rng=rng())
        clusters = DpuClusters(
            servers.source(wire, writer),
            servers.connector(wire, writer),
            self._connections,
            stated,
            observations,
            rng=rng(),
        )
        self.parts: Mapping[str, Part] = {
            "observations": observations,
            "DPUClusters": stated,
            "DPU clusters": clusters,
        }

    def api(self, source: str) -> KubernetesApi | None:
        """The API server of a DPU cluster. The device never stands in for one that is away."""
        found = self._connections.api(source)
        return self._unreachable if found is None and source.startswith(f"{LOCAL}.") else found


def _facts(state: ResourcesState, key: str) -> ResourceFacts:
    row = state.objects.rows[key]
    times = (row.generation, row.created_ms, row.deleted_ms)
    return ResourceFacts(object_id(key), row.uid, *times, {}, {}, row.spec, row.version)
