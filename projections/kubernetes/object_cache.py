"""The objects of one collection, as a list-watch reports them. The readers and writers of an edge share this cache.

A writer puts the API server's response to its write here, so that its next write does not start from an older state
while the watch is behind. An older version of an object never replaces a newer one, except after the API server was
restored from an older backup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from schemas.kubernetes.objects import Metadata


class _Watched(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=_Watched)


class ObjectCache(Generic[T]):
    """Objects by a key. It is the handler of a list-watch. Listeners get each object that changed or was deleted."""

    def __init__(self, key: Callable[[T], str]) -> None:
        self.objects: dict[str, T] = {}
        self.is_complete = False
        """Whether every object of the collection was listed at least once."""
        self.went_back = False
        """Whether the API server was restored from an older backup since a reader last reset this flag."""
        self._key = key
        self._listed: dict[str, T] | None = None
        self._listeners: list[Callable[[T], None]] = []
        self._list_listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[T], None], on_list: Callable[[], None] | None = None) -> None:
        """Call the first function after each change of an object, the second one after each complete list."""
        self._listeners.append(listener)
        if on_list is not None:
            self._list_listeners.append(on_list)

    def list_began(self) -> None:
        self._listed = {}

    def present(self, item: T) -> None:
        if self._listed is not None:
            self._listed[self._key(item)] = item
        self.put(item)

    def put(self, item: T) -> None:
        """Store an object, unless the cache has a newer version of it."""
        known = self.objects.get(self._key(item))
        if known is not None and _version(item) < _version(known):
            return
        self.objects[self._key(item)] = item
        if known is None or _version(item) != _version(known):
            self._notify(item)

    def deleted(self, item: T) -> None:
        if self._listed is not None:
            self._listed.pop(self._key(item), None)
        known = self.objects.get(self._key(item))
        if known is not None and known.metadata.uid == item.metadata.uid:
            self.forget(self._key(item))

    def forget(self, key: str) -> None:
        """Remove an object that no longer exists."""
        known = self.objects.pop(key, None)
        if known is not None:
            self._notify(known)

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or {}, None
        self.is_complete = True
        self.went_back = self.went_back or went_back
        for key in [key for key in self.objects if key not in listed]:
            self.forget(key)
        if went_back:
            for key, item in listed.items():
                self.objects[key] = item
                self._notify(item)
        for listener in self._list_listeners:
            listener()

    def _notify(self, item: T) -> None:
        for listener in self._listeners:
            listener(item)


def _version(item: _Watched) -> int:
    """The resource version; versions grow as integers (KEP-5504)."""
    text = item.metadata.resource_version
    return int(text) if text.isdecimal() else 0
