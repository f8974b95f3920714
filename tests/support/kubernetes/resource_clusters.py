"""A plane that writes objects of resources into a source cluster and a DPU cluster, both with real API servers.

What users state is read from the source cluster by `state_all`, which stands for the edge of the plane.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from commands.kubernetes.list_watch import ListWatch
from deploy.composition.topics import TOPICS
from drivers.kubernetes.resources.cluster import Watch
from drivers.kubernetes.resources.driver import ResourceDriver
from eventstore.log import RESOURCES
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent
from projections.kubernetes.resources.api_kinds import API_KINDS, STATED
from projections.kubernetes.resources.live_object import LiveMetadata, LiveObject
from projections.kubernetes.resources.manifests import is_own
from projections.resources.clusters import cluster_source
from projections.resources.kinds import DPU_CLUSTER, DPU_SET, NODE
from projections.resources.rollouts.planned import next_record, set_plan
from projections.resources.state import ObjectId, ResourcesState
from schemas.events import ResourcesApplied, ResourcesDeleted, ResourcesObserved, RolloutRequested
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi, PatchType
from schemas.resources.dpf.names import OWNING_DEPLOYMENT
from tests.support.derivations import full
from tests.support.kubernetes.requests import get
from tests.support.memory_log import MemoryLog
from tests.support.memory_plane import Plane

SOURCE = "east"
PATIENCE_S = 120.0


class CountedApi:
    """An API server whose requests are counted by verb, and those for schemas of kinds by themselves: they are repeated
    while a wanted kind has no definition. While the server is away, every request fails."""

    def __init__(self, api: KubernetesApi) -> None:
        self.requests: Counter[str] = Counter()
        self.versions: list[tuple[str, str]] = []
        """The object and its version after each patch. A patch without an effect repeats the version before it."""
        self.is_away = False
        self._api = api

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        verb = "schemas" if path.startswith("/openapi/") else "get"
        return await self._counted(verb, self._api.get(path, query))

    async def create(self, path: str, body: Any) -> bytes:
        return await self._counted("create", self._api.create(path, body))

    async def replace(self, path: str, body: Any) -> bytes:
        return await self._counted("replace", self._api.replace(path, body))

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        answer = await self._counted("patch", self._api.patch(path, body, kind, query))
        about = json.loads(answer)["metadata"]
        self.versions.append((about["uid"], about["resourceVersion"]))
        return answer

    async def delete(self, path: str, *, uid: str) -> bytes:
        return await self._counted("delete", self._api.delete(path, uid=uid))

    def watch(self, path: str, query: Mapping[str, str], *, idle_s: float) -> AbstractAsyncContextManager[Any]:
        self.requests["watch"] += 1
        return self._api.watch(path, query, idle_s=idle_s)

    @property
    def writes(self) -> int:
        return self.requests["patch"] + self.requests["delete"] + self.requests["create"]

    def repeated(self) -> list[tuple[str, str]]:
        """The patches without an effect, but for those that create an object: two at a time are one to the server."""
        made = dict(reversed(self.versions))
        return [each for each, times in Counter(self.versions).items() if times > 1 and made[each[0]] != each[1]]

    async def _counted(self, verb: str, request: Any) -> bytes:
        self.requests[verb] += 1
        if self.is_away:
            request.close()
            raise ApiError(0, "Unreachable", "no connection")
        answer: bytes = await request
        return answer


class Connected:
    """The API servers of a source cluster and of its DPU clusters, as the driver is given them."""

    def __init__(self, apis: Mapping[str, KubernetesApi]) -> None:
        self._apis = dict(apis)
        self._listeners: list[Callable[[], None]] = []

    def sources(self) -> Iterable[str]:
        return list(self._apis)

    def api(self, source: str) -> KubernetesApi | None:
        return self._apis.get(source)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def change(self, source: str, api: KubernetesApi | None) -> None:
        """Connect or disconnect a cluster."""
        if api is None:
            self._apis.pop(source, None)
        else:
            self._apis[source] = api
        for listener in self._listeners:
            listener()


class ResourceClusters:
    """A plane, its source cluster and a DPU cluster, whose DPUCluster is `dpus` in the namespace."""

    def __init__(self, made: Plane, api: KubernetesApi, dpu_api: KubernetesApi, namespace: str) -> None:
        self.plane, self.api, self.dpu_api, self.namespace = made, api, dpu_api, namespace
        self.counted = CountedApi(api)
        self.dpu_counted = CountedApi(dpu_api)
        self.dpu_source = cluster_source(ObjectId(SOURCE, DPU_CLUSTER, namespace, "dpus").key)
        self.connected = Connected({SOURCE: self.counted, self.dpu_source: self.dpu_counted})
        self.partition = TOPICS.partition_for(RESOURCES, SOURCE, made.log.partition_count)
        self.patience_s = PATIENCE_S
        self.events: list[ObjectEvent] = []
        self.drivers: dict[str, ResourceDriver] = {}

    async def start(self, name: str, *, lag_s: float = 0.0) -> ResourceDriver:
        """Start a process that writes, and does nothing else. It reads each record of the log `lag_s` late."""
        log = MemoryLog(self.plane.contents, self.plane.now_ms)
        life = await self.plane.start(name, "api", "kubernetes", acts=False, log=log)
        log.failures.read_latency_s = lag_s
        driver = ResourceDriver(
            life.replica,
            self.plane.ranks(name),
            self.partition,
            SOURCE,
            connections=self.connected,
            open_watch=self._watch,
            now_ms=self.plane.now_ms,
            rng=self.plane.rng(),
            report=self.events.append,
            requests_per_second=500.0,
        )
        self.drivers[name] = driver
        self.plane.spawn(name, driver.run())
        self.plane.spawn(name, self._state_again())
        return driver

    def _watch(self, api: KubernetesApi, path: str, cache: ObjectCache[LiveObject], selector: str) -> Watch:
        return ListWatch(api, path, LiveObject, cache, rng=self.plane.rng(), label_selector=selector)

    @property
    def state(self) -> ResourcesState:
        found: ResourcesState = self._replica.folded(self.partition).state
        return found

    @property
    def _replica(self) -> Any:
        return next(iter(self.plane.replicas.values()))

    # -- the edge

    async def _state_again(self) -> None:
        while True:
            await self.state_all()
            await asyncio.sleep(0.2)

    async def state_all(self) -> None:
        """State what users have in the source cluster, and what they have deleted."""
        found: dict[str, dict[str, Any]] = {}
        for kind in STATED:
            for item in await self._listed(kind):
                meta = item["metadata"]
                is_child = OWNING_DEPLOYMENT in meta.get("labels", {})
                if is_child or not is_own(LiveMetadata(labels=meta.get("labels"))):
                    found[ObjectId(SOURCE, kind, meta["namespace"], meta["name"]).key] = {**item, "key": kind}
        rows = self.state.objects.rows
        new = [item for key, item in found.items() if key not in rows or _facts(item) != _known(rows[key])]
        if new:
            await self._submit(_applied(new, self.plane.command(SOURCE)))
        external = [key for key in rows if key.startswith(f"{SOURCE}/") and rows[key].is_external]
        gone = [key.split("/", 3) for key in external if key not in found]
        if gone:
            _, kinds, namespaces, names = map(list, zip(*gone, strict=True))
            await self._submit(ResourcesDeleted(self.plane.command(SOURCE), SOURCE, kinds, namespaces, names, []))

    async def _listed(self, kind: str) -> list[dict[str, Any]]:
        try:
            found = await get(self.api, API_KINDS[kind].path(self.namespace))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return []
        items: list[dict[str, Any]] = found["items"]
        return items

    async def observe(
        self, kind: str, name: str, observation: Mapping[str, Any] | None, *, in_dpu_cluster: bool = False
    ) -> None:
        """State what an observer sees of an object of the source cluster, or of the DPU cluster."""
        text = json.dumps(observation) if observation is not None else ""
        source = self.dpu_source if in_dpu_cluster else SOURCE
        namespace = "" if kind == NODE else self.namespace
        event = ResourcesObserved(self.plane.command(SOURCE), source, [kind], [namespace], [name], [""], [text])
        await self._submit(event)

    async def discover(self, kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        """State an object that a search for DPUs has found."""
        at = ([kind], [self.namespace], [name])
        spec_text = json.dumps(spec)
        event = ResourcesApplied(
            self.plane.command(SOURCE), SOURCE, *at, [], [], [], [], [dict(labels)], [{}], [spec_text], [0], [], []
        )
        await self._submit(event)

    async def plan(self, name: str) -> None:
        """State the plan of a DPUSet's rollout, as its driver does."""
        key = ObjectId(SOURCE, DPU_SET, self.namespace, name).key
        found = set_plan(self.state, full(self.state), key)
        assert found is not None
        event = next_record(self.state, found, self._replica.position(self.partition), self.plane.command(SOURCE))
        assert event is not None
        await self._submit(event)

    async def request(self, name: str, verb: str) -> None:
        """Pause, resume or undo the rollout of a DPUSet."""
        await self._submit(RolloutRequested(self.plane.command(SOURCE), SOURCE, DPU_SET, self.namespace, name, verb, 0))

    async def _submit(self, event: Any) -> None:
        answer = await self._replica.submit(self.partition, SOURCE.encode(), event, timeout_s=30.0)
        assert answer.outcome.code in ("done", "unchanged"), answer.outcome

    # -- objects

    async def create(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
        """Create an object as its user does."""
        of = API_KINDS[kind]
        body = {
            "apiVersion": of.api_version,
            "kind": of.name,
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": spec,
        }
        found: dict[str, Any] = json.loads(await self.api.create(of.path(self.namespace), body))
        return found

    async def object(self, kind: str, name: str, *, in_dpu_cluster: bool = False) -> dict[str, Any] | None:
        """An object, or None."""
        try:
            return await get(self._api(in_dpu_cluster), API_KINDS[kind].path(self.namespace, name))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def names(self, kind: str, *, in_dpu_cluster: bool = False) -> list[str]:
        """The names of the objects of a kind."""
        found = await get(self._api(in_dpu_cluster), API_KINDS[kind].path(self.namespace))
        return sorted(item["metadata"]["name"] for item in found["items"])

    async def edit(
        self, kind: str, name: str, patch: Any, *, in_dpu_cluster: bool = False, manager: str = "ann"
    ) -> None:
        """Change an object as another user does."""
        path = API_KINDS[kind].path(self.namespace, name)
        await self._api(in_dpu_cluster).patch(path, patch, "merge", {"fieldManager": manager})

    async def delete(self, kind: str, name: str, *, in_dpu_cluster: bool = False) -> None:
        """Delete an object as its user does."""
        found = await self.object(kind, name, in_dpu_cluster=in_dpu_cluster)
        assert found is not None
        path = API_KINDS[kind].path(self.namespace, name)
        await self._api(in_dpu_cluster).delete(path, uid=found["metadata"]["uid"])

    async def clear(self) -> None:
        """Delete every object of the namespace: another plane would wait until its fold knows them."""
        for kind in STATED:
            for item in await self._listed(kind):
                meta = item["metadata"]
                path = API_KINDS[kind].path(self.namespace, meta["name"])
                if meta.get("finalizers"):
                    await self.api.patch(path, {"metadata": {"finalizers": None}}, "merge")
                if "deletionTimestamp" not in meta:
                    await self.api.delete(path, uid=meta["uid"])

    async def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        """Wait for a condition, which may be asynchronous. Returns its value."""
        found: Any = None
        try:
            async with asyncio.timeout(self.patience_s):
                while True:
                    found = holds()
                    found = await found if asyncio.iscoroutine(found) else found
                    if found:
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what or holds}: not within {self.patience_s:.0f} s") from None

    async def until_quiet(self, seconds: float = 1.0) -> None:
        """Wait until nothing has been written for a while."""
        loop = asyncio.get_running_loop()
        seen, since_s = -1, loop.time()
        async with asyncio.timeout(PATIENCE_S):
            while loop.time() < since_s + seconds:
                now = self.counted.writes + self.dpu_counted.writes
                if now != seen:
                    seen, since_s = now, loop.time()
                await asyncio.sleep(0.05)

    def _api(self, in_dpu_cluster: bool) -> KubernetesApi:
        return self.dpu_api if in_dpu_cluster else self.api


def _facts(item: Mapping[str, Any]) -> tuple[Any, ...]:
    meta = item["metadata"]
    return (
        meta["uid"],
        meta.get("generation", 0),
        "deletionTimestamp" in meta,
        meta.get("labels", {}),
        meta.get("annotations", {}),
    )


def _known(row: Any) -> tuple[Any, ...]:
    return (row.uid, row.generation, bool(row.deleted_ms), row.labels, row.annotations)


def _applied(items: list[dict[str, Any]], envelope: Any) -> ResourcesApplied:
    metas = [item["metadata"] for item in items]
    return ResourcesApplied(
        envelope,
        SOURCE,
        [item["key"] for item in items],
        [meta["namespace"] for meta in metas],
        [meta["name"] for meta in metas],
        [meta["uid"] for meta in metas],
        [meta.get("generation", 1) for meta in metas],
        [1_000] * len(items),
        [1_000 if "deletionTimestamp" in meta else 0 for meta in metas],
        [meta.get("labels", {}) for meta in metas],
        [meta.get("annotations", {}) for meta in metas],
        [json.dumps(item.get("spec") or {}) for item in items],
        [],
    )
