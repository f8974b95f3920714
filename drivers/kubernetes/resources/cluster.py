"""The objects of one cluster: their watches, the schemas of their kinds, and one queue of writes.

Kinds that the cluster has no definition of are left out. They are looked for again while something wants them, with
growing pauses, and every hour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.resources.schema_reader import SchemaReader
from drivers.kubernetes.resources.target import ResourceTarget
from drivers.kubernetes.writer import CatchUp, Writer
from eventstore.backoff import backoff_ceiling
from eventstore.replicas.beacons import Ranks
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import Report
from projections.kubernetes.resources.api_kinds import API_KINDS, STATED
from projections.kubernetes.resources.goals import Goals, LiveObjects
from projections.kubernetes.resources.live_object import LiveObject
from projections.kubernetes.resources.manifests import OWN_SELECTOR
from projections.resources.kinds import NAMESPACE, SECRET
from schemas.kubernetes.api import ApiError, KubernetesApi

logger = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 300.0
REFRESH_S = 3_600.0
"""Time after which the schemas are read again, in case definitions were replaced."""


class Watch(Protocol):
    """A list-watch of one collection."""

    @property
    def is_current(self) -> bool:
        """Whether the list is complete and a watch follows it."""
        ...

    async def run(self) -> None: ...


OpenWatch: TypeAlias = Callable[[KubernetesApi, str, ObjectCache[LiveObject], str], Watch]
"""Makes a list-watch of a path for a cache, with a label selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the writers of all clusters share. `on_listed` is called with the source of a cluster whose objects have
    been listed. `catch_up` folds and derives what the log has now."""

    goals: Goals
    live: LiveObjects
    ranks: Ranks
    catch_up: CatchUp
    open_watch: OpenWatch
    on_listed: Callable[[str], None]
    report: Report
    now_ms: Callable[[], int]
    rng: Random


class ClusterWriter:
    """Watches and writes the objects of some kinds in one cluster, while `run` runs."""

    def __init__(
        self, source: str, api: KubernetesApi, keys: Sequence[str], budget: RequestBudget, shared: Shared
    ) -> None:
        self.source = source
        self.targets: dict[str, ResourceTarget] = {}
        """By kind: the kinds that the cluster has."""
        self.writer = Writer(api, budget, rng=shared.rng, source=source, catch_up=shared.catch_up)
        self._api = api
        self._keys = keys
        self._is_source = STATED[0] in keys
        self._shared = shared
        self._schemas = SchemaReader(api)
        self._watches: dict[str, Watch] = {}
        self._is_read = False
        self._lacking: set[str] = set()
        """Kinds that are wanted and that the cluster does not have."""
        self._lacks = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether it is known which kinds the cluster has."""
        return self._is_read

    @property
    def is_listed(self) -> bool:
        """Whether the objects of all kinds were listed completely."""
        return self._is_read and all(target.cache.is_complete for target in self.targets.values())

    @property
    def is_current(self) -> bool:
        """Whether all objects are listed and watched."""
        return self.is_listed and all(watch.is_current for watch in self._watches.values())

    def lacks(self, key: str) -> None:
        """Record that an object of a kind is wanted that the cluster does not have."""
        if key not in self._lacking and key in self._keys:
            self._lacking.add(key)
            logger.warning("objects not written: the cluster has no such kind", extra=self._about | {"kind": key})
            self._lacks.set()

    async def run(self) -> None:
        """Watch and write until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.writer.run())
                await self._follow_schemas(tasks)
        finally:
            self._shared.live.remove(self.source)

    async def _follow_schemas(self, tasks: asyncio.TaskGroup) -> None:
        failures = 0
        while True:
            try:
                found = await self._schemas.read(self._keys)
            except ApiError as error:
                pause_s = self._pause_s(failures)
                failures += 1
                about = self._about | {"pause_s": round(pause_s, 1)}
                logger.log(
                    logging.WARNING if failures in (1, 10, 100) else logging.DEBUG,
                    "schemas of the cluster not read, retrying: %s",
                    error,
                    extra=about,
                )
                await asyncio.sleep(pause_s)
                continue
            for key, schema in found.items():
                self._open(key, tasks)
                self.targets[key].schema = schema
            self._lacking.difference_update(found)
            if not self._is_read:
                self._is_read = True
                self._listed()
            failures = failures + 1 if self._lacking else 0
            await self._next_read(failures)

    async def _next_read(self, failures: int) -> None:
        """Wait until the schemas should be read again: soon if a wanted kind is lacking."""
        self._lacks.clear()
        wait_s = self._pause_s(failures + 4) if failures else REFRESH_S * self._shared.rng.uniform(0.8, 1.2)
        try:
            async with asyncio.timeout(wait_s):
                await self._lacks.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._pause_s(1))

    def _pause_s(self, failures: int) -> float:
        return backoff_ceiling(failures, RETRY_S, RETRY_S_MAX) * self._shared.rng.uniform(0.5, 1.0)

    def _open(self, key: str, tasks: asyncio.TaskGroup) -> None:
        """Watch the objects of a kind."""
        if key in self.targets:
            return
        shared = self._shared
        kind, cache = API_KINDS[key], shared.live.add(self.source, key)
        target = self.targets[key] = ResourceTarget(
            self.source, kind, cache, shared.goals, shared.ranks, report=shared.report, now_ms=shared.now_ms
        )
        target.has_namespace = self._has_namespace
        if key == SECRET and self._is_source:  # no right to list Secrets is needed there
            target.is_watched = False
            cache.list_began()
            cache.list_completed(went_back=False)
            return
        cache.subscribe(lambda item: None, self._listed)
        is_whole = key in STATED or key == NAMESPACE
        watch = self._shared.open_watch(self._api, kind.path(), cache, "" if is_whole else OWN_SELECTOR)
        self._watches[key] = watch
        target.is_watching = lambda: watch.is_current
        tasks.create_task(watch.run())

    def _listed(self) -> None:
        if self._is_read:
            self._shared.on_listed(self.source)
            for target in self.targets.values():
                self.writer.recovered(target)

    def _has_namespace(self, namespace: str) -> bool:
        found = self.targets.get(NAMESPACE)
        if found is None or namespace in found.cache.objects:
            return True
        if not found.cache.is_complete:
            return False
        self._shared.goals.namespaces[found.key(namespace)] = None
        self.writer.mark(found, namespace)
        return False

    @property
    def _about(self) -> dict[str, str]:
        return {"cluster": self.source}
