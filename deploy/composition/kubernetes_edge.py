"""The Kubernetes edge of a process: the connection to one source cluster, and the parts that watch and write it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from commands.kubernetes.list_watch import ListWatch, WatchCounts
from commands.kubernetes.node_edge import NodeEdge
from commands.kubernetes.node_facts import NodeRules
from eventstore.replicas.replica import Replica
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import Node

ConnectKubernetes: TypeAlias = Callable[[], AbstractAsyncContextManager[KubernetesApi]]
"""Opens the connection to the API server."""

NODES = "/api/v1/nodes"


class KubernetesEdge:
    """Watches the Nodes of one source cluster while `run` runs."""

    def __init__(
        self,
        connect: ConnectKubernetes,
        replica: Replica,
        rules: NodeRules,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.source = rules.source
        self.nodes = NodeEdge(replica, rules, now_ms=now_ms, rng=rng)
        self.watches: dict[str, ListWatch[Node]] = {}
        """List-watches by the plural of their resource; none before the connection is open."""
        self._connect = connect
        self._rng = rng

    def counts(self) -> dict[str, WatchCounts]:
        """Counts by resource."""
        return {resource: watch.counts for resource, watch in self.watches.items()}

    async def run(self) -> None:
        """Watch until cancelled. Raises KubeconfigInvalid."""
        async with self._connect() as api, asyncio.TaskGroup() as tasks:
            self.watches["nodes"] = ListWatch(api, NODES, Node, self.nodes, rng=self._rng)
            tasks.create_task(self.nodes.run())
            tasks.create_task(self.watches["nodes"].run())
