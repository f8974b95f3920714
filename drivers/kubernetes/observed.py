"""Objects of one kind as last seen, by a list-watch or in the answers to our own writes.

An answer is newer than the watch, which may repeat or delay events. Therefore, an older resource version of an object
never replaces a newer one. After a restore of the API server from a backup, the next complete list replaces all. An
answer with a version that was already exceeded when its request was sent shows such a restore, and counts at once:
otherwise the writer would take its own write for lost, and repeat it until the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

import msgspec

from schemas.kubernetes.objects import Custom

DELETED_MAX = 10_000
"""Maximum deleted objects whose last version is remembered; at this limit, all of them are dropped."""


class Observed(NamedTuple):
    """An object: its spec as JSON, and its decoded status. `status_s` is the loop time at which this status appeared;
    minus infinity for an empty status, and for the status with which the object was first seen."""

    name: str
    uid: str
    version: int
    generation: int
    labels: Mapping[str, str]
    spec: bytes
    status: Mapping[str, Any]
    status_s: float


class ObservedObjects:
    """Objects by name, and the handler of their list-watch. `on_change` is called with the name of a changed object."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.objects: dict[str, Observed] = {}
        self.listed = asyncio.Event()
        """Set after the first complete list. From then on, a name that is missing here has no object in the cluster."""
        self.on_change: Callable[[str], None] = lambda name: None
        self._now_s = now_s
        self._listed: dict[str, Custom] | None = None
        self._deleted: dict[str, int] = {}

    # -- the handler of the list-watch

    def list_began(self) -> None:
        self._listed = {}

    def present(self, item: Custom) -> None:
        if self._listed is not None:
            self._listed[item.metadata.name] = item
        else:
            self.saw(item)

    def deleted(self, item: Custom) -> None:
        """Remove a deleted object, unless a newer object has its name."""
        name, version = item.metadata.name, version_of(item)
        known = self.objects.get(name)
        if known is None or known.version <= version or known.uid == item.metadata.uid:
            self.saw_none(name, version)

    def list_completed(self, *, went_back: bool) -> None:
        """Remove the objects that the list lacks, and record the others. A removed object may be newer than the list.
        The watch begins where the list ends, and reports such an object again."""
        listed, self._listed = self._listed or {}, None
        if went_back:
            self.objects = {name: found._replace(version=0) for name, found in self.objects.items()}
            self._deleted.clear()
        self.listed.set()
        for name in [*self.objects]:
            if name not in listed:
                self._deleted[name] = self.objects.pop(name).version - 1
                self.on_change(name)
        for item in listed.values():
            self.saw(item)

    # -- reads and answers

    def version(self, name: str) -> int:
        """The recorded version of an object, or of its deletion; -1 for an unknown name."""
        known = self.objects.get(name)
        return known.version if known is not None else self._deleted.get(name, -1)

    def saw(self, item: Custom, *, sent_at: int = -1) -> None:
        """Record an object, unless its recorded version is the same or newer. `sent_at` is the recorded version at the
        time of the request: a server that answers with a lower one was restored from a backup."""
        name, version, known = item.metadata.name, version_of(item), self.objects.get(item.metadata.name)
        if version <= self.version(name) and version >= sent_at:
            return
        status: dict[str, Any] = msgspec.json.decode(item.status) or {}
        if known is not None and known.uid == item.metadata.uid and known.status == status:
            status_s = known.status_s
        else:
            status_s = self._now_s() if known is not None and status else -inf
        found = item.metadata
        self.objects[name] = Observed(
            name, found.uid, version, found.generation, found.labels or {}, bytes(item.spec), status, status_s
        )
        self._deleted.pop(name, None)
        self.on_change(name)

    def saw_none(self, name: str, version: int = -1) -> None:
        """Record that no object has this name at this version."""
        found = self.objects.pop(name, None)
        if len(self._deleted) >= DELETED_MAX:
            self._deleted.clear()
        self._deleted[name] = max(version, found.version if found is not None else -1, self._deleted.get(name, -1))
        if found is not None:
            self.on_change(name)


def version_of(item: Custom) -> int:
    """The resource version as an integer, which grows (KEP-5504); 0 if it is no integer."""
    version = item.metadata.resource_version
    return int(version) if version.isdecimal() else 0
