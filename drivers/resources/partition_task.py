"""Actors of topic resources: each has one task per partition, which compares the objects and what follows from them
with the log, and appends what the log lacks.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from drivers.internal_events import InternalEvents
from drivers.resource_worlds import ResourceWorlds
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.fold_states import FoldStates
from projections.resources.derivation import Derivation
from projections.resources.live_derivation import LiveDerivation
from projections.resources.state import ResourcesState
from schemas.events import Envelope


class TaskContext(NamedTuple):
    """The context of the tasks of partitions: the parts that they read and append with."""

    replica: Replica
    ranks: Ranks
    events: InternalEvents
    partition: Partition
    now_ms: Callable[[], int]


class PartitionTask(ABC):
    """The work of an actor on one resources partition."""

    actor: ClassVar[str]
    """The name of the actor in its events."""

    def __init__(self, context: TaskContext) -> None:
        self._replica, self._ranks, self._events, self._partition, self._now_ms = context
        self._states = FoldStates(self._replica)
        self._worlds = ResourceWorlds(self._replica)

    @abstractmethod
    async def run(self) -> None:
        """Append the records that are needed, for ever."""

    @property
    def _state(self) -> ResourcesState:
        return self._states.resources_at(self._partition)

    @property
    def _live(self) -> LiveDerivation:
        return self._worlds.live(self._partition)

    @property
    def _derivation(self) -> Derivation:
        return self._live.derivation

    async def _derive(self) -> None:
        """Bring the derivation up to date with the state. It is so until the next await."""
        await self._worlds.derived(self._partition)

    def _envelope(self, subject: str) -> Envelope:
        return internal_envelope(subject, f"{self.actor}/{self._replica.name}", self._now_ms())


class ResourcesActor:
    """Runs a task for every resources partition until `run` is cancelled."""

    def __init__(
        self,
        make_task: Callable[[TaskContext], PartitionTask],
        replica: Replica,
        ranks: Ranks,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self.internal_events = InternalEvents(replica, ranks, API)
        self._make_task = make_task
        self._replica = replica
        self._ranks = ranks
        self._now_ms = now_ms

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(RESOURCES):
                context = TaskContext(self._replica, self._ranks, self.internal_events, partition, self._now_ms)
                tasks.create_task(self._make_task(context).run())
