"""The daemon of kubernetes-sigs/dra-driver-nvidia-gpu, as far as it claims an index: its algorithm, step by step.

It labels its pod, makes the clique's object once per process, takes the smallest index that no row has, and writes the
whole object; a conflict is retried with its backoff. It never makes an object again that was deleted under it, compares
only the addresses of rows, and removes its row by its address when it stops. Its cache is its own last write or the
watch, whichever is newer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec

from commands.kubernetes.list_watch import ListWatch
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.kubernetes.compute_domains import NOT_READY, READY, CliqueObject
from schemas.kubernetes.objects import Metadata, Pod
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL

MAX_NODES = 18
BACKOFF_S = 0.005
BACKOFF_S_MAX = 6.0
JITTER = 0.25


class NoIndex(Exception):
    """No index is free below the maximum."""


class UpstreamDaemon:
    """One daemon, from its start to its end. `pod` is its own pod."""

    def __init__(self, api: KubernetesApi, pod: Metadata, node: str, address: str, *, clique: str, rng: Random) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        """Writes by verb and status."""
        self.indices: list[int] = []
        """The indices that its row had, in order: more than one means that a running daemon was moved."""
        self.failure = ""
        """The text of its last error."""
        self._api = api
        self._pod = pod
        self._node = node
        self._address = address
        self._domain = (pod.labels or {})[DOMAIN_LABEL]
        self._clique = clique
        self._rng = rng
        self._name = f"{self._domain}.{clique}"
        self._path = COMPUTE_DOMAIN_CLIQUE.path(pod.namespace, self._name)
        self._cache: ObjectCache[CliqueObject] = ObjectCache(lambda item: item.metadata.name)
        self._cache.subscribe(self._on_clique)
        self._copy: dict[str, Any] | None = None
        """The object as this daemon has it: a deleted one stays, as in upstream's mutation cache."""
        self._is_made = False
        self._is_ready: bool | None = None
        self._items = 0
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled, which is a crash; `stop` is a graceful end."""
        pod_path = f"/api/v1/namespaces/{self._pod.namespace}/pods/{self._pod.name}"
        await self._api.patch(pod_path, {"metadata": {"labels": {CLIQUE_LABEL: self._clique}}}, "merge")
        selector = f"{DOMAIN_LABEL}={self._domain}"
        cliques = COMPUTE_DOMAIN_CLIQUE.path(self._pod.namespace)
        pods = pod_path.rpartition("/")[0]
        async with asyncio.TaskGroup() as tasks:
            for work in (
                ListWatch(self._api, cliques, CliqueObject, self._cache, rng=self._rng, label_selector=selector).run(),
                ListWatch(self._api, pods, Pod, _OwnPod(self), rng=self._rng, label_selector=selector).run(),
                self._serve(),
            ):
                tasks.create_task(work)

    async def stop(self) -> None:
        """Remove every row with this daemon's address, once, from the object as last seen."""
        copy = self._copy
        if copy is None:
            return
        kept = [row for row in copy.get("daemons") or [] if row["ipAddress"] != self._address]
        try:
            await self._put({**copy, "daemons": kept})
        except ApiError as error:
            self.failure = str(error)

    # -- events

    def _on_clique(self, item: CliqueObject) -> None:
        if item.metadata.name != self._name or self._name not in self._cache.objects:
            return
        row = item.row(self._node)
        if row is not None and row.index is not None and self.indices[-1:] != [row.index]:
            self.indices.append(row.index)
        self._enqueue()

    def on_pod(self, pod: Pod) -> None:
        if pod.metadata.uid == self._pod.uid:
            self._is_ready = pod.is_ready
            self._enqueue()

    def _enqueue(self) -> None:
        self._items += 1
        self._work.set()

    # -- the queue: an item that fails is dropped if a newer one waits

    async def _serve(self) -> None:
        while not self._cache.is_complete:  # the informer's first list
            await asyncio.sleep(0.01)
        self._enqueue()
        while True:
            await self._work.wait()
            self._work.clear()
            failed = 0
            while True:
                item = self._items
                await self._pause(failed)
                try:
                    await self._sync()
                    break
                except (ApiError, NoIndex) as error:
                    self.failure = str(error)
                    failed = 0 if self._items != item else failed + 1

    async def _pause(self, failed: int) -> None:
        pause_s = min(BACKOFF_S * 2**failed, BACKOFF_S_MAX) * self._rng.uniform(1 - JITTER, 1 + JITTER)
        try:
            async with asyncio.timeout(pause_s):
                await self._work.wait()
                self._work.clear()
        except TimeoutError:
            return

    async def _sync(self) -> None:
        known = self._cache.objects.get(self._name)
        if known is not None and (self._copy is None or _version(known.metadata) > _version_of(self._copy)):
            self._copy = msgspec.json.decode(await self._api.get(self._path))
        if not self._is_made:
            await self._make()
        assert self._copy is not None
        row = next((row for row in self._copy.get("daemons") or [] if row["nodeName"] == self._node), None)
        if row is None:
            await self._insert()
        elif row["ipAddress"] != self._address:
            await self._put(self._with_row({**row, "ipAddress": self._address}))
        elif self._is_ready is not None and (row.get("status") == READY) != self._is_ready:
            await self._put(self._with_row({**row, "status": READY if self._is_ready else NOT_READY}))
        self.failure = ""

    async def _make(self) -> None:
        if self._copy is None:
            labels = {DOMAIN_LABEL: self._domain, CLIQUE_LABEL: self._clique}
            body = {
                "apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version,
                "kind": COMPUTE_DOMAIN_CLIQUE.name,
                "metadata": {"name": self._name, "namespace": self._pod.namespace, "labels": labels},
            }
            path = COMPUTE_DOMAIN_CLIQUE.path(self._pod.namespace)
            self._copy = await self._counted("POST", lambda: self._api.create(path, body))
        self._is_made = True

    async def _insert(self) -> None:
        assert self._copy is not None
        rows = self._copy.get("daemons") or []
        used = {row.get("index", 0) for row in rows}
        index = next(index for index in range(MAX_NODES + 1) if index not in used)
        if index >= MAX_NODES:
            raise NoIndex(f"no available indices within maxNodesPerIMEXDomain ({MAX_NODES})")
        row = {
            "nodeName": self._node,
            "ipAddress": self._address,
            "cliqueID": self._clique,
            "index": index,
            "status": NOT_READY,
        }
        metadata = self._copy["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": self._pod.name, "uid": self._pod.uid}
        owners = [*(metadata.get("ownerReferences") or []), owner]
        await self._put({**self._copy, "metadata": {**metadata, "ownerReferences": owners}, "daemons": [*rows, row]})

    def _with_row(self, row: dict[str, Any]) -> dict[str, Any]:
        assert self._copy is not None
        rows = [row if each["nodeName"] == self._node else each for each in self._copy["daemons"]]
        return {**self._copy, "daemons": rows}

    async def _put(self, body: dict[str, Any]) -> None:
        self._copy = await self._counted("PUT", lambda: self._api.replace(self._path, body))
        self._cache.put(msgspec.convert(self._copy, CliqueObject, strict=False))

    async def _counted(self, verb: str, request: Callable[[], Awaitable[bytes]]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode(await request())
        except ApiError as error:
            self.answers[verb, error.status] += 1
            raise
        self.answers[verb, 200] += 1
        return found


class _OwnPod:
    """The handler of the watch of pods."""

    def __init__(self, daemon: UpstreamDaemon) -> None:
        self._daemon = daemon

    def list_began(self) -> None:
        return

    def present(self, item: Pod) -> None:
        self._daemon.on_pod(item)

    def deleted(self, item: Pod) -> None:
        return

    def list_completed(self, *, went_back: bool) -> None:
        return


def _version(metadata: Metadata) -> int:
    return int(metadata.resource_version or 0)


def _version_of(body: dict[str, Any]) -> int:
    return int(body["metadata"].get("resourceVersion", 0))
