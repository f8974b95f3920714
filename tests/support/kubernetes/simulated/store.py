"""The objects of the simulated API server, with their versions and the changes that led to them, as etcd keeps them.

An object is never changed in place, so an earlier state costs only the tables that refer to its objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.kubernetes.simulated.kinds import Collection, Object
from tests.support.kubernetes.simulated.patches import Owners

FIRST_VERSION = 1_000


class Change(NamedTuple):
    """A committed change: no object before means created, none after means deleted."""

    version: int
    collection: Collection
    key: str
    before: Object | None
    after: Object | None


@dataclass
class Saved:
    """The state at one version."""

    version: int
    objects: dict[Collection, dict[str, Object]]
    owners: dict[tuple[Collection, str, str], Owners]


@dataclass
class Store:
    """The state and its history. `changed` is called after every commit."""

    changed: Callable[[Change], None]
    version: int = FIRST_VERSION
    history: list[Change] = field(default_factory=list)
    floor: int = FIRST_VERSION
    """The version after which all changes are known."""
    _objects: dict[Collection, dict[str, Object]] = field(default_factory=dict)
    _owners: dict[tuple[Collection, str, str], Owners] = field(default_factory=dict)

    def get(self, collection: Collection, key: str) -> Object | None:
        return self._objects.get(collection, {}).get(key)

    def at(self, collection: Collection, version: int) -> dict[str, Object]:
        """The objects by key as they were at a version that is not below the floor."""
        assert version >= self.floor
        found = dict(self._objects.get(collection, {}))
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.collection == collection:
                found.pop(change.key, None)
                if change.before is not None:
                    found[change.key] = change.before
        return found

    def commit(self, collection: Collection, key: str, after: Object | None) -> Object:
        """Store the object under the next version, or delete it; returns it, or its last state, with that version."""
        objects = self._objects.setdefault(collection, {})
        before = objects.get(key)
        kept = after if after is not None else before
        assert kept is not None, "only an object that exists is deleted"
        self.version += 1
        stored = {**kept, "metadata": {**kept["metadata"], "resourceVersion": str(self.version)}}
        if after is None:
            del objects[key]
            for owned in [place for place in self._owners if place[:2] == (collection, key)]:
                del self._owners[owned]
        else:
            objects[key] = stored
        change = Change(self.version, collection, key, before, stored if after is not None else None)
        self.history.append(change)
        self.changed(change)
        return stored

    def owners(self, collection: Collection, key: str, subresource: str) -> Owners:
        """Who owns which fields of an object."""
        return self._owners.setdefault((collection, key, subresource), {})

    def compact(self) -> None:
        """Forget the history."""
        self.history.clear()
        self.floor = self.version

    def save(self) -> Saved:
        owners = {place: {name: set(paths) for name, paths in each.items()} for place, each in self._owners.items()}
        return Saved(self.version, {name: dict(each) for name, each in self._objects.items()}, owners)

    def restore(self, saved: Saved) -> None:
        """Go back to a saved state: versions are given again, and nothing before is known."""
        self._objects = {name: dict(each) for name, each in saved.objects.items()}
        self._owners = {place: {name: set(paths) for name, paths in o.items()} for place, o in saved.owners.items()}
        self.version = saved.version
        self.compact()
