"""The objects of one collection as last seen, by a list-watch or in the responses to our own requests. The readers and
writers of an edge share this cache.

A response is newer than the watch, which may repeat or delay events. Therefore, an older version of an object never
replaces a newer one. After a restore of the API server from a backup, the next complete list replaces all. A response
with a version that was already exceeded when its request was sent shows such a restore, and counts at once: otherwise a
writer would take its own write for lost, and repeat it until the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from schemas.kubernetes.objects import Custom, Metadata, version_number

DELETED_MAX = 10_000
"""Maximum deleted objects whose last version is remembered; at this limit, all of them are dropped."""


class _Watched(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=_Watched)


class ObjectCache(Generic[T]):
    """Objects by a key. It is the handler of a list-watch. Listeners get each object that changed or was deleted."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self.objects: dict[str, T] = {}
        self.is_complete = False
        """Whether every object of the collection was listed at least once. From then on, a key that is missing here has
        no object in the cluster."""
        self.went_back = False
        """Whether the API server was restored from an older backup since a reader last reset this flag."""
        self._key = key
        self._listed: dict[str, T] | None = None
        self._deleted: dict[str, int] = {}
        self._listeners: list[Callable[[T], None]] = []
        self._list_listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[T], None], on_list: Callable[[], None] | None = None) -> None:
        """Call the first function after each change of an object, the second one after each complete list."""
        self._listeners.append(listener)
        if on_list is not None:
            self._list_listeners.append(on_list)

    # -- the handler of the list-watch

    def list_began(self) -> None:
        self._listed = {}

    def present(self, item: T) -> None:
        if self._listed is not None:
            self._listed[self._key(item)] = item
        else:
            self.put(item)

    def deleted(self, item: T) -> None:
        """Remove a deleted object, unless a newer object has its key."""
        key, version = self._key(item), _version(item)
        known = self.objects.get(key)
        if known is None or _version(known) <= version or known.metadata.uid == item.metadata.uid:
            self.forget(key, version)

    def list_completed(self, *, went_back: bool) -> None:
        """Remove the objects that the list lacks, and record the others. A removed object may be newer than the list.
        The watch begins where the list ends, and reports such an object again. No version from before a restore is
        remembered: the server assigns it again, and an object created with it would stay unseen."""
        listed, self._listed = self._listed or {}, None
        self.is_complete = True
        self.went_back = self.went_back or went_back
        if went_back:
            self._deleted.clear()
        for key in [key for key in self.objects if key not in listed]:
            known = self.objects.pop(key)
            if not went_back:
                self._deleted[key] = _version(known) - 1
            self._notify(known)
        for item in listed.values():
            if went_back:
                self._store(item)
            else:
                self.put(item)
        for listener in self._list_listeners:
            listener()

    # -- responses

    def version(self, key: str) -> int:
        """The recorded version of an object, or of its deletion; -1 for an unknown key."""
        known = self.objects.get(key)
        return _version(known) if known is not None else self._deleted.get(key, -1)

    def put(self, item: T, *, sent_at: int = -1) -> None:
        """Record an object, unless its recorded version is the same or newer. `sent_at` is the recorded version at the
        time of the request: a server that answers with a lower one was restored from a backup, and so was a server that
        answers with an object in the version of its deletion."""
        key, version = self._key(item), _version(item)
        known = self.version(key)
        is_revived = key not in self.objects and version == known == sent_at
        if version > known or version < sent_at or is_revived:
            self._store(item)

    def forget(self, key: str, version: int = -1) -> None:
        """Record that no object has this key at this version."""
        found = self.objects.pop(key, None)
        if len(self._deleted) >= DELETED_MAX:
            self._deleted.clear()
        self._deleted[key] = max(version, _version(found) if found is not None else -1, self._deleted.get(key, -1))
        if found is not None:
            self._notify(found)

    def _store(self, item: T) -> None:
        key = self._key(item)
        self._deleted.pop(key, None)
        self.objects[key] = item
        self._notify(item)

    def _notify(self, item: T) -> None:
        for listener in self._listeners:
            listener(item)


def named_objects() -> ObjectCache[Custom]:
    """A cache of objects of a custom kind, by name."""
    return ObjectCache(lambda item: item.metadata.name)


def _version(item: _Watched) -> int:
    return version_number(item.metadata.resource_version)
