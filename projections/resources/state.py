"""The objects of a resources partition, and the indexes that are derived from them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import msgspec

from eventstore.folding.state_table import StateTable
from projections.resources.change_journal import ChangeJournal
from projections.resources.references import references

MAX_OBJECTS = 200_000
"""Maximum number of objects of one partition, of all its sources: with specs of 1 kB they take about 500 MB."""


class ObjectId(NamedTuple):
    """The identity of an object in its source. A kind is `Kind.group`."""

    source: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key of the object's row: no part contains a slash."""
        return "/".join(self)


class Resource(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The row of one object. `spec` is JSON.

    `created_ms`, `changed_ms` and `deleted_ms` are the times of the object's creation, of the last change of its spec
    and of its deletion, 0 if it is not deleted. `changed_offset` is the offset of the record with the last change.
    `is_external` means that a Kubernetes cluster assigns uid and generation, and removes the object.
    """

    uid: str
    generation: int
    created_ms: int
    changed_ms: int
    changed_offset: int
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: str
    deleted_ms: int = 0
    is_external: bool = False
    actor: str = ""


Rows = Mapping[str, Resource | None]
"""New rows by key; None removes one."""


def object_id(key: str) -> ObjectId:
    """The identity in a key. The name may have slashes in the key of an object that only a reference names."""
    return ObjectId(*key.split("/", 3))


def targets(key: str, row: Resource) -> tuple[str, ...]:
    """The keys of the objects that an object refers to, each once."""
    at = object_id(key)
    spec = msgspec.json.decode(row.spec)
    found = (ObjectId(at.source, kind, at.namespace, name).key for _, kind, name in references(at.kind, spec))
    return tuple(dict.fromkeys(found))


class ResourcesState:
    """The objects of one partition. `objects` is keyed `source/kind/namespace/name`.

    Derived are the names of each kind (`by_kind`, keyed `source/kind`), and the objects that refer to each object
    (`referrers`), both in sorted or insertion order, never as a set. `journal` has the keys that changed last.
    """

    def __init__(self) -> None:
        self.objects: StateTable[Resource] = StateTable("objects", Resource)
        self.journal = ChangeJournal()
        self._clear()

    def _clear(self) -> None:
        self.by_kind: MutableMapping[str, dict[str, None]] = {}
        self.referrers: MutableMapping[str, dict[str, None]] = {}
        self._targets: dict[str, tuple[str, ...]] = {}

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        return (self.objects,)

    def rederive(self) -> None:
        self.journal.restart()
        self._clear()
        for key in sorted(self.objects.rows):
            self._index(key, self.objects.rows[key])

    def apply(self, rows: Rows) -> None:
        """Put and remove these rows."""
        self.journal.record(rows)
        for key, row in rows.items():
            self._remove_from_index(key)
            if row is None:
                self.objects.remove(key)
            else:
                self.objects.put(key, row)
                self._index(key, row)

    def targets(self, key: str) -> tuple[str, ...]:
        """The keys of the objects that an object refers to."""
        return self._targets.get(key, ())

    def of_kind(self, source: str, kind: str) -> Sequence[str]:
        """The keys of all objects of a kind, sorted."""
        return sorted(self.by_kind.get(f"{source}/{kind}", ()))

    def _index(self, key: str, row: Resource) -> None:
        at = object_id(key)
        self.by_kind.setdefault(f"{at.source}/{at.kind}", {})[key] = None
        found = self._targets[key] = targets(key, row)
        for target in found:
            self.referrers.setdefault(target, {})[key] = None

    def _remove_from_index(self, key: str) -> None:
        at = object_id(key)
        kind = f"{at.source}/{at.kind}"
        self.by_kind.get(kind, {}).pop(key, None)
        if not self.by_kind.get(kind, True):
            del self.by_kind[kind]
        for target in self._targets.pop(key, ()):
            self.referrers[target].pop(key, None)
            if not self.referrers[target]:
                del self.referrers[target]
