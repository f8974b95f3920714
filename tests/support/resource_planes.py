"""A plane on virtual time whose processes fold resources, and the objects of one partition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eventstore.log import RESOURCES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.state import ObjectId, ResourcesState
from schemas.events import Event, ResourcesApplied, ResourcesDeleted
from tests.support.derivations import full
from tests.support.memory_plane import Plane

SOURCE, NAMESPACE = "local", "dpf"


def key(kind: str, name: str) -> str:
    return ObjectId(SOURCE, kind, NAMESPACE, name).key


class ResourcePlane:
    """Objects of the source `local`, as the first process of a plane folds them."""

    def __init__(self, made: Plane) -> None:
        self.made = made

    async def start(self, name: str) -> Replica:
        """Start a process that folds resources, and acts as the test spawns it."""
        life = await self.made.start(name, "api", "provisioner", acts=False)
        return life.replica

    @property
    def replica(self) -> Replica:
        return next(iter(self.made.replicas.values()))

    @property
    def partition(self) -> Partition:
        return self.replica.partition_for(RESOURCES, SOURCE)

    @property
    def state(self) -> ResourcesState:
        return FoldStates(self.replica).resources_at(self.partition)

    def world(self) -> World:
        """The objects and what follows from them, derived anew."""
        return World.of(self.state, full(self.state))

    def conditions(self, kind: str, name: str) -> tuple[Condition, ...]:
        return conditions_of(key(kind, name), self.world())

    def is_ready(self, kind: str, name: str) -> bool:
        return self.conditions(kind, name)[0].holds

    def names(self, kind: str) -> list[str]:
        """The names of the stated objects of a kind, sorted."""
        return [each.rpartition("/")[2] for each in self.state.of_kind(SOURCE, kind)]

    def seen(self, kind: str, name: str) -> dict[str, Any]:
        """What is observed of an object; empty if nothing is."""
        found = self.state.seen.get(key(kind, name))
        return {} if found is None else found.fields

    async def apply(
        self, kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None
    ) -> None:
        event = ResourcesApplied(
            self.made.command(SOURCE),
            source=SOURCE,
            kinds=[kind],
            namespaces=[NAMESPACE],
            names=[name],
            uids=[],
            generations=[],
            created_ms=[],
            deleted_ms=[],
            labels=[dict(labels or {})],
            annotations=[{}],
            specs=[json.dumps(spec)],
            expected_generations=[-1],
        )
        await self._submit(event)

    async def delete(self, kind: str, name: str) -> None:
        await self._submit(ResourcesDeleted(self.made.command(SOURCE), SOURCE, [kind], [NAMESPACE], [name], [""]))

    async def _submit(self, event: Event) -> None:
        answer = await self.replica.submit(self.partition, SOURCE.encode(), event, timeout_s=30.0)
        assert answer.outcome.code == "done", answer
