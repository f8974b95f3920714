"""The daemon of kubernetes-sigs/dra-driver-nvidia-gpu, as far as it claims an index: its algorithm, step by step.

It labels its pod, makes the clique's object once per process, takes the smallest index that no row has, and writes the
whole object; a conflict is retried with its backoff. It watches its clique and its pod only. It never makes an object
again that was deleted under it, compares only the addresses of rows, and removes its row by its address when it stops.
Its cache is its own last write or the watch, whichever is newer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

import msgspec

from commands.kubernetes.list_watch import ListWatch
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.api import TOO_MANY_REQUESTS, ApiError, KubernetesApi, WatchEvent
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

    def __init__(
        self,
        api: KubernetesApi,
        pod: Metadata,
        node: str,
        address: str,
        *,
        clique: str,
        rng: Random,
        start: asyncio.Event | None = None,
    ) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        """Writes by verb and status."""
        self.indices: list[int] = []
        """The indices that its row had, in order: more than one means that a running daemon was moved."""
        self.failure = ""
        """The text of its last error."""
        self.is_listed = False
        """Whether it has its clique and its pod from the API server, and waits for `start`."""
        self.labelled_s = 0.0
        """When it had labelled its pod, on the clock of the loop."""
        self.api = api
        self.pod = pod
        self.node = node
        self.address = address
        self.domain = (pod.labels or {})[DOMAIN_LABEL]
        self.clique = clique
        self.rng = rng
        self.name = f"{self.domain}.{clique}"
        self._start = start
        self._path = COMPUTE_DOMAIN_CLIQUE.path(pod.namespace, self.name)
        self._cache: ObjectCache[CliqueObject] = ObjectCache(lambda item: item.metadata.name)
        self._cache.subscribe(self._on_clique)
        self._copy: dict[str, Any] | None = None
        """The object as this daemon has it: a deleted one stays, as in upstream's mutation cache."""
        self._is_made = False
        self.is_ready: bool | None = None
        """Whether its pod is ready; None before the first list."""
        self._items = 0
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled, which is a crash; `stop` is a graceful end."""
        cliques = COMPUTE_DOMAIN_CLIQUE.path(self.pod.namespace)
        pods = f"/api/v1/namespaces/{self.pod.namespace}/pods"
        own_clique, own_pod = NamedObject(self.api, self.name), NamedObject(self.api, self.pod.name)
        watched = OwnPod(self)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ListWatch(own_clique, cliques, CliqueObject, self._cache, rng=self.rng).run())
            tasks.create_task(ListWatch(own_pod, pods, Pod, watched, rng=self.rng).run())
            while not (self._cache.is_complete and watched.is_complete):  # the informers' first lists
                await asyncio.sleep(0.01)
            self.is_listed = True
            if self._start is not None:
                await self._start.wait()
            await self._label(f"{pods}/{self.pod.name}")
            self.labelled_s = asyncio.get_running_loop().time()
            await self._serve()

    async def _label(self, path: str) -> None:
        """Label its pod. An overloaded server is asked again, as client-go does; any other error ends the daemon."""
        label = {"metadata": {"labels": {CLIQUE_LABEL: self.clique}}}
        while True:
            try:
                await self.api.patch(path, label, "merge")
                return
            except ApiError as error:
                if error.status != TOO_MANY_REQUESTS:
                    raise
                await asyncio.sleep(error.retry_after_s or 1.0)

    async def stop(self) -> None:
        """Remove every row with this daemon's address, once, from the object as last seen."""
        copy = self._copy
        if copy is None:
            return
        kept = [row for row in copy.get("daemons") or [] if row["ipAddress"] != self.address]
        try:
            await self._put({**copy, "daemons": kept})
        except ApiError as error:
            self.failure = str(error)

    # -- events

    def _on_clique(self, item: CliqueObject) -> None:
        if item.metadata.name != self.name or self.name not in self._cache.objects:
            return
        row = item.row(self.node)
        if row is not None and row.index is not None and self.indices[-1:] != [row.index]:
            self.indices.append(row.index)
        self._enqueue()

    def on_pod(self, pod: Pod) -> None:
        if pod.metadata.uid == self.pod.uid:
            self.is_ready = pod.is_ready
            self._enqueue()

    def _enqueue(self) -> None:
        self._items += 1
        self._work.set()

    # -- the queue: an item that fails is dropped if a newer one waits

    async def _serve(self) -> None:
        self._enqueue()
        while True:
            await self._work.wait()
            self._work.clear()
            failed = 0
            while True:
                item = self._items
                await self._pause(failed)
                try:
                    await self.sync()
                    break
                except (ApiError, NoIndex) as error:
                    self.failure = str(error)
                    failed = 0 if self._items != item else failed + 1

    async def _pause(self, failed: int) -> None:
        pause_s = min(BACKOFF_S * 2**failed, BACKOFF_S_MAX) * self.rng.uniform(1 - JITTER, 1 + JITTER)
        try:
            async with asyncio.timeout(pause_s):
                await self._work.wait()
                self._work.clear()
        except TimeoutError:
            return

    async def sync(self) -> None:
        """One item of the queue: write what the object lacks of this daemon. Raises ApiError or NoIndex."""
        known = self._cache.objects.get(self.name)
        if known is not None and (self._copy is None or _version(known.metadata) > _version_of(self._copy)):
            self._copy = _body(known)
        if not self._is_made:
            await self._make()
        assert self._copy is not None
        row = next((row for row in self._copy.get("daemons") or [] if row["nodeName"] == self.node), None)
        if row is None:
            await self._insert()
        elif row["ipAddress"] != self.address:
            await self._put(self._with_row({**row, "ipAddress": self.address}))
        elif self.is_ready is not None and (row.get("status") == READY) != self.is_ready:
            await self._put(self._with_row({**row, "status": READY if self.is_ready else NOT_READY}))
        self.failure = ""

    async def _make(self) -> None:
        if self._copy is None:
            labels = {DOMAIN_LABEL: self.domain, CLIQUE_LABEL: self.clique}
            body = {
                "apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version,
                "kind": COMPUTE_DOMAIN_CLIQUE.name,
                "metadata": {"name": self.name, "namespace": self.pod.namespace, "labels": labels},
            }
            path = COMPUTE_DOMAIN_CLIQUE.path(self.pod.namespace)
            self._copy = await self.counted("POST", lambda: self.api.create(path, body))
        self._is_made = True

    async def _insert(self) -> None:
        assert self._copy is not None
        rows = self._copy.get("daemons") or []
        used = {row.get("index", 0) for row in rows}
        index = next(index for index in range(MAX_NODES + 1) if index not in used)
        if index >= MAX_NODES:
            raise NoIndex(f"no available indices within maxNodesPerIMEXDomain ({MAX_NODES})")
        row = {
            "nodeName": self.node,
            "ipAddress": self.address,
            "cliqueID": self.clique,
            "index": index,
            "status": NOT_READY,
        }
        metadata = self._copy["metadata"]
        owners = [*(metadata.get("ownerReferences") or []), self.owner]
        await self._put({**self._copy, "metadata": {**metadata, "ownerReferences": owners}, "daemons": [*rows, row]})

    @property
    def owner(self) -> dict[str, str]:
        """The reference to its pod, which owns the object among others."""
        return {"apiVersion": "v1", "kind": "Pod", "name": self.pod.name, "uid": self.pod.uid}

    @property
    def shown(self) -> CliqueObject | None:
        """The object as the watch or the last write has it."""
        return self._cache.objects.get(self.name)

    def wrote(self, answer: dict[str, Any]) -> None:
        """Take the answer to a write for the newest state."""
        self._copy = answer
        self._cache.put(msgspec.convert(answer, CliqueObject, strict=False))

    def _with_row(self, row: dict[str, Any]) -> dict[str, Any]:
        assert self._copy is not None
        rows = [row if each["nodeName"] == self.node else each for each in self._copy["daemons"]]
        return {**self._copy, "daemons": rows}

    async def _put(self, body: dict[str, Any]) -> None:
        self.wrote(await self.counted("PUT", lambda: self.api.replace(self._path, body)))

    async def counted(self, verb: str, request: Callable[[], Awaitable[bytes]]) -> dict[str, Any]:
        """The answer to a write, which is counted. Raises ApiError."""
        try:
            found: dict[str, Any] = msgspec.json.decode(await request())
        except ApiError as error:
            self.answers[verb, error.status] += 1
            raise
        self.answers[verb, 200] += 1
        return found


class OwnPod:
    """The handler of the watch of the daemon's pod."""

    def __init__(self, daemon: UpstreamDaemon) -> None:
        self.is_complete = False
        self._daemon = daemon

    def list_began(self) -> None:
        return

    def present(self, item: Pod) -> None:
        self._daemon.on_pod(item)

    def deleted(self, item: Pod) -> None:
        return

    def list_completed(self, *, went_back: bool) -> None:
        self.is_complete = True


class NamedObject:
    """An API server of which lists and watches return one object only, as an informer with a field selector does."""

    def __init__(self, api: KubernetesApi, name: str) -> None:
        self._api = api
        self._field = {"fieldSelector": f"metadata.name={name}"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self._api.get(path, {**(query or {}), **self._field})

    def watch(
        self, path: str, query: Mapping[str, str], *, idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._api.watch(path, {**query, **self._field}, idle_s=idle_s)


def _body(item: CliqueObject) -> dict[str, Any]:
    """The object to write back. The server keeps the fields that a write leaves out."""
    found: dict[str, Any] = msgspec.to_builtins(item)
    kept = {name: value for name, value in found["metadata"].items() if value is not None}
    kind = {"apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version, "kind": COMPUTE_DOMAIN_CLIQUE.name}
    return {**kind, "metadata": kept, "daemons": found["daemons"] or []}


def _version(metadata: Metadata) -> int:
    return int(metadata.resource_version or 0)


def _version_of(body: dict[str, Any]) -> int:
    return int(body["metadata"].get("resourceVersion", 0))
