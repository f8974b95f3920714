"""Two variants of upstream's daemon that a measurement compares with it.

`ApplyDaemon` writes its row by server-side apply, as upstream's pull requests #827 and #1101 do: no version is checked,
so two daemons may have one index. Each takes a random free index, which collides less often than the lowest. If another
row has the same index, the daemon with the greater node name takes another one.

`LimitedApi` limits the writes of one daemon as client-go does by default: 5 per second, after a burst of 10. Lists and
watches are not limited. As in upstream's daemon, a write waits after its object was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from schemas.kubernetes.api import KubernetesApi, PatchType
from schemas.kubernetes.compute_domains import NOT_READY, READY
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL
from tests.support.kubernetes.upstream_daemon import MAX_NODES, NoIndex, UpstreamDaemon

PER_S = 5.0
BURST = 10


class ApplyDaemon(UpstreamDaemon):
    """Claims by server-side apply."""

    async def sync(self) -> None:
        """Apply what the object lacks of this daemon. Raises ApiError or NoIndex."""
        rows = (self.shown.daemons if self.shown is not None else None) or []
        own = next((row for row in rows if row.node_name == self.node), None)
        used = {row.index for row in rows if row.node_name != self.node}
        is_lost = own is None or any(row.index == own.index and row.node_name < self.node for row in rows)
        index = own.index if own is not None and not is_lost else self._free(used)
        status = READY if self.is_ready else NOT_READY
        if own is None or is_lost or own.status != status or own.ip_address != self.address:
            await self._apply(index, status)
        self.failure = ""

    def _free(self, used: set[int | None]) -> int:
        free = [index for index in range(MAX_NODES) if index not in used]
        if not free:
            raise NoIndex(f"no available indices within maxNodesPerIMEXDomain ({MAX_NODES})")
        return self.rng.choice(free)

    async def _apply(self, index: int | None, status: str) -> None:
        row = {
            "nodeName": self.node,
            "ipAddress": self.address,
            "cliqueID": self.clique,
            "index": index,
            "status": status,
        }
        labels = {DOMAIN_LABEL: self.domain, CLIQUE_LABEL: self.clique}
        body = {
            "apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version,
            "kind": COMPUTE_DOMAIN_CLIQUE.name,
            "metadata": {"name": self.name, "labels": labels, "ownerReferences": [self.owner]},
            "daemons": [row],
        }
        path = COMPUTE_DOMAIN_CLIQUE.path(self.pod.namespace, self.name)
        manager = {"fieldManager": f"compute-domain-daemon:{self.node}", "force": "true"}
        self.wrote(await self.counted("PATCH", lambda: self.api.patch(path, body, "apply", manager)))


class LimitedApi:
    """An API server with a limit on one client's writes."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._next_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def create(self, path: str, body: Any) -> bytes:
        await self._take()
        return await self._api.create(path, body)

    async def replace(self, path: str, body: Any) -> bytes:
        await self._take()
        return await self._api.replace(path, body)

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        await self._take()
        return await self._api.patch(path, body, kind, query)

    async def _take(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - BURST / PER_S) + 1 / PER_S
        await asyncio.sleep(max(0.0, self._next_s - now_s))
