"""List-watches of the Secrets that users label for pulling images, in each namespace of a source cluster with services.

They are per namespace, so that the plane needs no right to read the Secrets of all namespaces. A namespace has services
if it has a DPUService, a DPUDeployment, or the DPFOperatorConfig, whose components are services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol

from commands.kubernetes.list_watch import ListWatch
from commands.kubernetes.observation_edge import ForeignHandler, ObservationEdge
from commands.kubernetes.resource_facts import ResourceFacts
from projections.kubernetes.foreign.secrets import PULL_SECRET
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_DEPLOYMENT, DPU_SERVICE, SECRET
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import Custom

KINDS = (DPU_SERVICE, DPU_DEPLOYMENT, DPF_OPERATOR_CONFIG)
"""The kinds whose objects have services in their namespace."""


class StatedObjects(Protocol):
    """The objects of a source, as users state them."""

    @property
    def source(self) -> str: ...

    def objects(self, kind: str) -> Mapping[str, ResourceFacts]:
        """The objects of a kind by key."""
        ...

    def is_listed(self, kind: str) -> bool:
        """Whether an object that is missing does not exist."""
        ...

    def subscribe(self, kind: str, listener: Callable[[], None]) -> None:
        """Call a function after each change of an object of this kind, and after each complete list."""
        ...


class _Running(NamedTuple):
    handler: ForeignHandler
    watch: ListWatch[Custom]
    task: asyncio.Task[None]


class PullSecretWatches:
    """Observes labelled Secrets while `run` runs."""

    def __init__(
        self, api: KubernetesApi, stated: StatedObjects, observations: ObservationEdge, *, rng: Random
    ) -> None:
        self._api = api
        self._stated = stated
        self._observations = observations
        self._rng = rng
        self._running: dict[str, _Running] = {}
        self._work = asyncio.Event()
        for kind in KINDS:
            stated.subscribe(kind, self._work.set)

    @property
    def watches(self) -> Mapping[str, ListWatch[Custom]]:
        """The list-watches by namespace."""
        return {namespace: found.watch for namespace, found in self._running.items()}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._work.clear()
                wanted = {facts.at.namespace for kind in KINDS for facts in self._stated.objects(kind).values()}
                for namespace in sorted(wanted - self._running.keys()):
                    self._begin(tasks, namespace)
                if all(map(self._stated.is_listed, KINDS)):
                    await self._end_others(wanted)
                await self._work.wait()

    def _begin(self, tasks: asyncio.TaskGroup, namespace: str) -> None:
        source, path, selector = self._stated.source, API_KINDS[SECRET].path(namespace), PULL_SECRET.label_selector
        handler = ForeignHandler(self._observations, source, SECRET, PULL_SECRET.observe, namespace=namespace)
        watch = ListWatch(
            self._api, path, Custom, handler, rng=self._rng, label_selector=selector, versions=handler, source=source
        )
        self._running[namespace] = _Running(handler, watch, tasks.create_task(watch.run()))

    async def _end_others(self, wanted: set[str]) -> None:
        """End the watches of namespaces without services, and remove what was observed there, also before a restart."""
        for namespace in sorted(self._running.keys() - wanted):
            ended = self._running.pop(namespace)
            ended.task.cancel()
            await asyncio.wait((ended.task,))
            ended.handler.remove_all()
        for at in self._observations.observed(self._stated.source, SECRET):
            if at.namespace not in wanted:
                self._observations.remove(at)
