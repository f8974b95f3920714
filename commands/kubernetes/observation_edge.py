"""Observations of objects that other programs own, appended to topic resources when a field that folds use changes.

An observation is the JSON text that the reader of its kind makes of an object. Without a complete list of a kind, no
observation is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import Random

import msgspec

from commands.kubernetes.differences import Differences, Record
from eventstore.bounded_batches import bounded_batches
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.state import ObjectId, object_id
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, ResourcesObserved
from schemas.kubernetes.objects import Custom

BYTES_MAX = MAX_COMMAND_BYTES * 3 // 4
_NONE = ("", "")


class ObservationEdge:
    """Appends changed observations of one source cluster and its DPU clusters, while `run` runs."""

    def __init__(self, replica: Replica, ranks: Ranks, source: str, *, now_ms: Callable[[], int], rng: Random) -> None:
        self.source = source
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"kubernetes/{source}/{replica.name}"
        self._wanted: dict[str, tuple[str, str]] = {}
        """The uid and the observation of each object, by key; an empty observation if the object is gone."""
        self.differences = Differences(
            replica, ranks, source, self._plan, lambda: self._wanted, rng=rng, on_refused=lambda key, reason: None
        )

    async def run(self) -> None:
        """Append differences until cancelled."""
        await self.differences.run()

    def put(self, at: ObjectId, uid: str, fields: Mapping[str, object]) -> None:
        """Observe an object: its fields, without those that are empty."""
        text = msgspec.json.encode({name: value for name, value in fields.items() if value or name == "ready"}).decode()
        if self._wanted.get(at.key) != (uid, text):
            self._wanted[at.key] = (uid, text)
            self.differences.mark((at.key,))

    def remove(self, at: ObjectId) -> None:
        """Observe that an object is gone."""
        if self._is_observed(at.key) or self._wanted.get(at.key, _NONE)[1]:
            self._wanted[at.key] = _NONE
            self.differences.mark((at.key,))
        else:
            self._wanted.pop(at.key, None)

    def text(self, at: ObjectId) -> str:
        """The last observation of an object, also one that is not folded yet; empty if there is none."""
        if (wanted := self._wanted.get(at.key)) is not None:
            return wanted[1]
        row = self._states.resources(self.source).observed.rows.get(at.key)
        return row.observation if row is not None else ""

    def position(self) -> int:
        """The position of the fold."""
        return self._replica.position(self._replica.partition_for(RESOURCES, self.source))

    def observed(self, source: str, kind: str, before: float = inf, *, namespace: str = "") -> list[ObjectId]:
        """The objects of a kind with an observation that is older than this position, in one namespace or in all."""
        prefix = f"{source}/{kind}/{namespace}/" if namespace else f"{source}/{kind}/"
        rows = self._states.resources(self.source).observed.rows
        return [object_id(key) for key in rows if key.startswith(prefix) and rows[key].changed_offset < before]

    def sources(self) -> list[str]:
        """The sources of all observed objects, sorted."""
        return sorted({key.partition("/")[0] for key in self._states.resources(self.source).observed.rows})

    def remove_all(self, source: str) -> None:
        """Remove the observations of every object in a DPU cluster that is none any more."""
        keys = (*self._wanted, *self._states.resources(self.source).observed.rows)
        for key in dict.fromkeys(key for key in keys if key.startswith(f"{source}/")):
            self.remove(object_id(key))

    def _is_observed(self, key: str) -> bool:
        return key in self._states.resources(self.source).observed.rows

    def _plan(self, keys: Sequence[str]) -> list[Record]:
        """The records that the fold lacks about these objects, by source, as a record has one source."""
        rows = self._states.resources(self.source).observed.rows
        lacking: dict[str, list[tuple[ObjectId, str, str]]] = {}
        for key in keys:
            wanted, row = self._wanted.get(key), rows.get(key)
            if wanted is None or key in self.differences.refused:
                continue
            if (row.uid if row and wanted[1] else wanted[0], row.observation if row else "") != wanted:
                at = object_id(key)
                lacking.setdefault(at.source, []).append((at, *wanted))
        return [record for source in lacking for record in self._records(source, lacking[source])]

    def _records(self, source: str, lacking: Sequence[tuple[ObjectId, str, str]]) -> Iterator[Record]:
        def size_of(item: tuple[ObjectId, str, str]) -> int:
            return len(item[2].encode()) + sum(map(len, item[0])) + len(item[1]) + 20

        for batch in bounded_batches(lacking, size_of, items_max=MAX_ITEMS, bytes_max=BYTES_MAX):
            event = ResourcesObserved(
                envelope(self.source, self._actor, uuid7(self._now_ms(), self._rng)),
                source,
                [at.kind for at, _, _ in batch],
                [at.namespace for at, _, _ in batch],
                [at.name for at, _, _ in batch],
                [uid for _, uid, _ in batch],
                [text for _, _, text in batch],
            )
            yield Record(event, tuple(at.key for at, _, _ in batch))


class ForeignHandler:
    """The handler of the list-watch of one kind in one cluster, or in one namespace of it."""

    def __init__(
        self,
        edge: ObservationEdge,
        source: str,
        kind: str,
        observe: Callable[[Custom], Mapping[str, object] | None],
        *,
        namespace: str = "",
    ) -> None:
        self._edge = edge
        self._source = source
        self._kind = kind
        self._observe = observe
        self._namespace = namespace
        self._names: set[ObjectId] = set()
        self._listed: set[ObjectId] | None = None
        self._began = 0

    @property
    def count(self) -> int:
        """Number of observed objects."""
        return len(self._names)

    def list_began(self) -> None:
        self._listed = set()
        self._began = self._edge.position()

    def present(self, item: Custom) -> None:
        at, found = self._at(item), self._observe(item)
        if found is None:
            self.deleted(item)
            return
        if self._listed is not None:
            self._listed.add(at)
        self._names.add(at)
        self._edge.put(at, item.metadata.uid, found)

    def deleted(self, item: Custom) -> None:
        at = self._at(item)
        if self._listed is not None:
            self._listed.discard(at)
        self._names.discard(at)
        self._edge.remove(at)

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or set(), None
        for at in self._names - listed:
            self._edge.remove(at)
        for at in self._edge.observed(self._source, self._kind, self._began, namespace=self._namespace):
            if at not in listed:
                self._edge.remove(at)
        self._names = listed

    def remove_all(self) -> None:
        """Remove the observations of all objects: the collection is watched no more."""
        for at in self._names:
            self._edge.remove(at)
        self._names = set()

    def _at(self, item: Custom) -> ObjectId:
        return ObjectId(self._source, self._kind, item.metadata.namespace, item.metadata.name)
