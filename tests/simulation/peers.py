"""The controllers of other programs in the source without Kubernetes, and the edge that observes their objects.

A controller sees the objects that the plane wants, moves each of them one step on, and says what is observed of it.
Each change is appended as an observation. After the faults nothing fails any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES, ZONES, Partition, partition_of
from projections.resources.derivation import Derivation
from projections.resources.kinds import APPLICATION
from projections.resources.state import LOCAL, ResourcesState, object_id
from projections.resources.wanted import Wanted
from schemas import events as e
from schemas.kubernetes.objects import Custom
from tests.simulation.clients import Client
from tests.simulation.plan import PARTITIONS
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.simulation.workload import Request

NAME = "peers"
ITEMS_MAX = 20
PARTITION = Partition(RESOURCES, partition_of(LOCAL.encode(), PARTITIONS))

Item = dict[str, Any]


class Controller(Protocol):
    """A program that makes something of the objects of its kinds."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    async def advance(self, wanted: Mapping[str, Wanted], rng: random.Random, position: int) -> None:
        """Move each object of its kinds one step on, as they are wanted at a position of the log."""
        ...

    def observed(self) -> dict[str, str]:
        """What is observed of each of its objects, by key."""
        ...

    def heal(self) -> None:
        """Fail no more."""
        ...


class Peers:
    """Runs controllers. `client` appends what the edge observes."""

    def __init__(
        self,
        controllers: Sequence[Controller],
        client: Client,
        processes: Sequence[Process],
        now_ms: Callable[[], int],
        pause_s: float,
    ) -> None:
        self._controllers = controllers
        self._client = client
        self._processes = processes
        self._now_ms = now_ms
        self._pause_s = pause_s
        self._rng = random.Random(0)
        self._position = 0

    async def run(self, director: Director, seed: int) -> None:
        """Move each object one step on, again and again, until cancelled."""
        async for action in director.actions(NAME, self._draw):
            self._rng = action.rng(seed)
            process = latest(self._processes)
            if process is None or process.instance is None:
                continue
            position, state = process.instance.replica.position(PARTITION), resources_of(process)
            if position < self._position:  # no API server goes back to what it had before
                continue
            self._position = position
            changes = dict(islice(await self._changes(state, position), ITEMS_MAX))
            if changes:
                action.description = f"{process.name}: {', '.join(changes)}"
                request = Request(PARTITION, LOCAL.encode(), self._observed(changes))
                await self._client.send(request, self._rng.choice(self._processes))

    def heal(self) -> None:
        """Let nothing fail any more."""
        for each in self._controllers:
            each.heal()

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), "observe"

    async def _changes(self, state: ResourcesState, position: int) -> Iterator[tuple[str, str]]:
        """The observations that the fold lacks, by key; an empty one for an object that is gone."""
        wanted = wanted_objects(state)
        texts: dict[str, str] = {}
        for each in self._controllers:
            await each.advance(
                {key: wanted[key] for key in wanted if wanted[key].at.kind in each.kinds}, self._rng, position
            )
            texts |= each.observed()
        kinds = {kind for each in self._controllers for kind in each.kinds}
        known = {key: row.observation for key, row in state.observed.rows.items() if _is_own(key, kinds)}
        changed = {key: text for key, text in texts.items() if known.get(key) != text}
        return iter((changed | {key: "" for key in known if key not in texts}).items())

    def _observed(self, changes: Mapping[str, str]) -> e.ResourcesObserved:
        ids = [object_id(key) for key in changes]
        return e.ResourcesObserved(
            envelope(LOCAL, NAME, uuid7(self._now_ms(), self._rng)),
            LOCAL,
            [at.kind for at in ids],
            [at.namespace for at in ids],
            [at.name for at in ids],
            [],
            [*changes.values()],
        )


def latest(processes: Sequence[Process]) -> Process | None:
    """The process that is up and has folded most of the objects; None if none is up."""
    return max(filter(_has_folds, processes), key=_position, default=None)


def resources_of(process: Process) -> ResourcesState:
    """The objects as a process that is up has them."""
    assert process.instance is not None
    state: ResourcesState = process.instance.replica.state(PARTITION)
    return state


def wanted_objects(state: ResourcesState) -> dict[str, Wanted]:
    """The objects that the plane wants in the source cluster, by key."""
    derivation = Derivation()
    derivation.update(state, state.objects.rows)
    winners = derivation.in_clusters.claims.winners
    return {key: winners[key] for key in sorted(winners) if winners[key].at.source == LOCAL}


def wanted_applications(state: ResourcesState) -> dict[str, Wanted]:
    """The Applications that the DPUServices of the source want."""
    return {key: each for key, each in wanted_objects(state).items() if each.at.kind == APPLICATION}


def item_of(wanted: Wanted, known: Mapping[str, Any]) -> Item:
    """An object as it is wanted, with the status that it has."""
    metadata: Item = {"name": wanted.at.name, "namespace": wanted.at.namespace}
    metadata |= {"labels": {**wanted.labels}, "annotations": {**wanted.annotations}}
    return {"metadata": metadata, "spec": wanted.spec, "status": known.get("status", {})}


def observed_text(item: Item, observe: Callable[[Custom], Mapping[str, object] | None]) -> str:
    """What the edge observes of an object."""
    custom = msgspec.json.decode(msgspec.json.encode(item), type=Custom)
    return msgspec.json.encode(observe(custom), order="sorted").decode()


def _has_folds(process: Process) -> bool:
    """Whether a process is up. At its start, it may lack partitions for a moment."""
    if process.instance is None or not process.instance.is_up:
        return False
    replica = process.instance.replica
    return all(map(replica.is_folded, (PARTITION, *replica.partitions(ZONES))))


def _position(process: Process) -> int:
    assert process.instance is not None
    return process.instance.replica.position(PARTITION)


def _is_own(key: str, kinds: set[str]) -> bool:
    at = object_id(key)
    return at.source == LOCAL and at.kind in kinds
