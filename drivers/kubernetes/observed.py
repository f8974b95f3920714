"""The objects of one kind with decoded statuses, as the object cache has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

import msgspec

from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.objects import Custom


class Observed(NamedTuple):
    """An object: its spec as JSON, and its decoded status. `status_s` is the loop time at which this status appeared;
    minus infinity for an empty status, and for the status with which the object was first seen."""

    name: str
    uid: str
    generation: int
    labels: Mapping[str, str]
    spec: bytes
    status: Mapping[str, Any]
    status_s: float


class ObservedObjects:
    """Objects by name. `on_change` is called with the name of a changed object."""

    def __init__(self, cache: ObjectCache[Custom], now_s: Callable[[], float]) -> None:
        self.objects: dict[str, Observed] = {}
        self.on_change: Callable[[str], None] = lambda name: None
        self._cache = cache
        self._now_s = now_s
        cache.subscribe(self._changed)
        for item in cache.objects.values():
            self._changed(item)

    def _changed(self, item: Custom) -> None:
        name = item.metadata.name
        current = self._cache.objects.get(name)
        if current is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = self._decoded(current)
        self.on_change(name)

    def _decoded(self, item: Custom) -> Observed:
        metadata, known = item.metadata, self.objects.get(item.metadata.name)
        status: dict[str, Any] = msgspec.json.decode(item.status) or {}
        if known is not None and known.uid == metadata.uid and known.status == status:
            status_s = known.status_s
        else:
            status_s = self._now_s() if known is not None and status else -inf
        labels = metadata.labels or {}
        return Observed(metadata.name, metadata.uid, metadata.generation, labels, bytes(item.spec), status, status_s)
