"""Observations of objects that other programs own, appended to topic resources when a field that folds use changes.

An observation is the JSON text that the reader of its kind makes of an object. Without a complete list of a kind, no
observation is removed. An observation has the resource version of its object. It does not replace an observation of a
later version: another edge has seen a newer object. After a restore of the API server from a backup, the listed objects
replace all observations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import NamedTuple

import msgspec

from commands.kubernetes.differences import Differences, Record
from eventstore.bounded_batches import bounded_batches
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.state import ObjectId, Observed, object_id
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, ResourcesObserved
from schemas.kubernetes.objects import Custom, version_number

BYTES_MAX = MAX_COMMAND_BYTES * 3 // 4


class _Wanted(NamedTuple):
    """The state of an object that this edge saw last: its uid, its observation (empty if the object is gone), and its
    resource version (0 if unknown)."""

    uid: str
    text: str
    version: int = 0

    @property
    def content(self) -> tuple[str, str]:
        """The part of an observation that is compared."""
        return self.uid, self.text


class ObservationEdge:
    """Appends changed observations of one source cluster and its DPU clusters, while `run` runs."""

    def __init__(self, replica: Replica, ranks: Ranks, source: str, *, now_ms: Callable[[], int], rng: Random) -> None:
        self.source = source
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"kubernetes/{source}/{replica.name}"
        self._wanted: dict[str, _Wanted] = {}
        """The observation of each object, by key."""
        self._restored: dict[str, int] = {}
        """Objects that were listed, or missing, after a restore of the API server, with the position of the fold before
        the list: they replace observations of later versions that were folded before it."""
        self.differences = Differences(
            replica, ranks, source, self._plan, lambda: self._wanted, rng=rng, on_refused=lambda key, reason: None
        )

    async def run(self) -> None:
        """Append differences until cancelled."""
        await self.differences.run()

    def put(self, at: ObjectId, uid: str, fields: Mapping[str, object], version: int = 0) -> None:
        """Observe an object: its fields, without those that are empty."""
        text = msgspec.json.encode({name: value for name, value in fields.items() if value or name == "ready"}).decode()
        wanted, known = _Wanted(uid, text, version), self._wanted.get(at.key)
        self._wanted[at.key] = wanted
        is_change = known is None or known.content != wanted.content
        if is_change or (at.key not in self.differences.refused and not self._is_in_fold(at.key, wanted)):
            self.differences.mark((at.key,))

    def remove(self, at: ObjectId, version: int = 0) -> None:
        """Observe that an object is gone. In this version, the server did not have it."""
        known = self._wanted.get(at.key)
        if self._is_observed(at.key) or (known is not None and known.text):
            self._wanted[at.key] = _Wanted("", "", version)
            self.differences.mark((at.key,))
        else:
            self._wanted.pop(at.key, None)

    def restored(self, keys: Iterable[str], began: int) -> None:
        """Let the observations of these objects replace those of later versions that were folded before this position:
        the API server was restored from a backup."""
        found = dict.fromkeys(keys, began)
        self._restored |= found
        self.differences.mark(found)

    def text(self, at: ObjectId) -> str:
        """The last observation of an object, also one that is not folded yet; empty if there is none."""
        if (wanted := self._wanted.get(at.key)) is not None:
            return wanted.text
        row = self.row(at.key)
        return row.observation if row is not None else ""

    def row(self, key: str) -> Observed | None:
        """The last observation of an object in the fold."""
        return self._states.resources(self.source).observed.rows.get(key)

    def position(self) -> int:
        """The position of the fold."""
        return self._replica.position(self._replica.partition_for(RESOURCES, self.source))

    def observed(self, source: str, kind: str, before: float = inf, *, namespace: str = "") -> list[ObjectId]:
        """The objects of a kind with an observation that is older than this position, in one namespace or in all."""
        prefix = f"{source}/{kind}/{namespace}/" if namespace else f"{source}/{kind}/"
        rows = self._states.resources(self.source).observed.rows
        return [object_id(key) for key in rows if key.startswith(prefix) and rows[key].changed_offset < before]

    def last_version(self, source: str, kind: str, *, namespace: str = "") -> int:
        """The highest version of an observed object of a kind, in one namespace or in all; 0 if there is none."""
        rows = self._states.resources(self.source).observed.rows
        return max((rows[at.key].version for at in self.observed(source, kind, namespace=namespace)), default=0)

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
        lacking: dict[str, list[tuple[ObjectId, _Wanted]]] = {}
        for key in keys:
            wanted = self._wanted.get(key)
            if wanted is None:
                self._restored.pop(key, None)
            elif key not in self.differences.refused and not self._is_in_fold(key, wanted):
                at = object_id(key)
                stated = wanted._replace(version=0) if key in self._restored else wanted
                lacking.setdefault(at.source, []).append((at, stated))
        return [record for source in lacking for record in self._records(source, lacking[source])]

    def _is_in_fold(self, key: str, wanted: _Wanted) -> bool:
        """Whether the fold has this observation, or one of a later version that another edge has seen."""
        row = self.row(key)
        if row is None or row.changed_offset >= self._restored.get(key, 0):
            self._restored.pop(key, None)
        if row is None:
            return not wanted.text
        if 0 < wanted.version < row.version:
            return key not in self._restored
        return (row.uid, row.observation) == wanted.content

    def _records(self, source: str, lacking: Sequence[tuple[ObjectId, _Wanted]]) -> Iterator[Record]:
        def size_of(item: tuple[ObjectId, _Wanted]) -> int:
            return len(item[1].text.encode()) + sum(map(len, item[0])) + len(item[1].uid) + 30

        for batch in bounded_batches(lacking, size_of, items_max=MAX_ITEMS, bytes_max=BYTES_MAX):
            event = ResourcesObserved(
                envelope(self.source, self._actor, uuid7(self._now_ms(), self._rng)),
                source,
                [at.kind for at, _ in batch],
                [at.namespace for at, _ in batch],
                [at.name for at, _ in batch],
                [wanted.uid for _, wanted in batch],
                [wanted.text for _, wanted in batch],
                resource_versions=[wanted.version for _, wanted in batch],
            )
            yield Record(event, tuple(at.key for at, _ in batch))


class ForeignHandler:
    """Handles the list-watch of one kind in one cluster, or in one namespace of it. Removals have the version of the
    last complete list."""

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
        self._listed: dict[ObjectId, int] | None = None
        """The versions of the listed objects while a list runs."""
        self._began = 0
        self._version = 0
        """The resource version of the last complete list."""

    @property
    def count(self) -> int:
        """Number of observed objects."""
        return len(self._names)

    def list_began(self) -> None:
        self._listed = {}
        self._began = self._edge.position()

    def present(self, item: Custom) -> None:
        at, found, version = self._at(item), self._observe(item), version_number(item.metadata.resource_version)
        if found is None:
            self.deleted(item)
            return
        if self._listed is not None:
            self._listed[at] = version
        self._names.add(at)
        self._edge.put(at, item.metadata.uid, found, version)

    def deleted(self, item: Custom) -> None:
        at = self._at(item)
        if self._listed is not None:
            self._listed.pop(at, None)
        self._names.discard(at)
        self._edge.remove(at, version_number(item.metadata.resource_version))

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or {}, None
        known = self._edge.observed(self._source, self._kind, self._began, namespace=self._namespace)
        absent = (self._names | set(known)) - listed.keys()
        for at in absent:
            self._edge.remove(at, self._version)
        if went_back:
            self._edge.restored((at.key for at in (*absent, *listed)), self._began)
        else:
            self._edge.restored((at.key for at in listed if self._contradicts(at, listed[at])), self._began)
        self._names = {*listed}

    def _contradicts(self, at: ObjectId, version: int) -> bool:
        """Whether a listed object is older than an observation that was folded before the list began. A list shows the
        present state, so the observation is from before a restore, or from another cluster of this name."""
        row = self._edge.row(at.key)
        return row is not None and row.changed_offset < self._began and 0 < version < row.version

    def last_version(self) -> int:
        return self._edge.last_version(self._source, self._kind, namespace=self._namespace)

    def record_version(self, version: int) -> None:
        self._version = version

    def remove_all(self) -> None:
        """Remove the observations of all objects: the collection is watched no more."""
        for at in self._names:
            self._edge.remove(at)
        self._names = set()

    def _at(self, item: Custom) -> ObjectId:
        return ObjectId(self._source, self._kind, item.metadata.namespace, item.metadata.name)
