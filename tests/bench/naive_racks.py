"""The naive form of membership in Kubernetes, as a peer: one object per rack with a list of names, rewritten per flush.

A ConfigMap of a rack lists all nodes that its DPUs must let in, which is every node of the fleet; or, with
`own_only`, only the rack's own nodes. Each change of a list rewrites its object. A flush begins half a second after the
last one, as in the plane's forwarder, or when that one is done.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

from commands.kubernetes.list_watch import ListWatch
from drivers.kubernetes.client import connect
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import RACK_LABEL, Node
from tests.support.kubernetes.cluster import ControlPlane

FLUSH_S = 0.5
CONCURRENT = 4
"""Concurrent writes, as those of the plane."""


class NaiveRacks:
    """A controller that keeps the lists while `run` runs, which returns once the object of every rack is complete."""

    def __init__(self, namespace: str, nodes: int, racks: int, *, own_only: bool) -> None:
        self.flushes = self.writes = 0
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._nodes = nodes
        self._racks = racks
        self._own_only = own_only
        self._cache: ObjectCache[Node] = ObjectCache(lambda item: item.metadata.name)
        self._written: dict[str, list[str]] = {}

    async def run(self, cluster: ControlPlane) -> None:
        loop = asyncio.get_running_loop()
        async with connect(str(cluster.kubeconfig())) as api:
            watch = asyncio.create_task(ListWatch(api, "/api/v1/nodes", Node, self._cache, rng=Random(1)).run())
            try:
                while sum(map(len, self._written.values())) < self._total:
                    began_s = loop.time()
                    await self._flush(api)
                    await asyncio.sleep(max(0.0, began_s + FLUSH_S - loop.time()))
            finally:
                watch.cancel()

    @property
    def _total(self) -> int:
        """The number of names in all objects at the end."""
        return self._nodes if self._own_only else self._nodes * self._racks

    async def _flush(self, api: KubernetesApi) -> None:
        by_rack: dict[str, list[str]] = {}
        for name in sorted(self._cache.objects):
            by_rack.setdefault((self._cache.objects[name].metadata.labels or {})[RACK_LABEL], []).append(name)
        everyone = sorted(self._cache.objects)
        wanted = by_rack if self._own_only else dict.fromkeys(by_rack, everyone)
        changed = {rack: names for rack, names in wanted.items() if self._written.get(rack) != names}
        self.flushes += bool(changed)
        slots = asyncio.Semaphore(CONCURRENT)

        async def write(rack: str, names: list[str]) -> None:
            body: dict[str, Any] = {"metadata": {"name": rack}, "data": {"names": json.dumps(names)}}
            async with slots:
                if rack in self._written:
                    await api.replace(f"{self._path}/{rack}", body)
                else:
                    await api.create(self._path, body)
            self._written[rack] = names
            self.writes += 1

        await asyncio.gather(*(write(rack, names) for rack, names in changed.items()))
