"""The protocol of a store of objects that steps read and edit: the log of a plane, or the API server of a cluster.

An edit names the version that it was made from. If the object has changed since, nothing is written, and the caller
reads it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from projections.resources.specs import JSON, Labels
from projections.resources.state import ObjectId


class StoredObject(NamedTuple):
    """An object. An empty `version` means that it does not exist yet. `boot_id` is that of a Node's host; empty for
    other objects."""

    at: ObjectId
    uid: str
    version: str
    labels: Labels
    annotations: Labels
    spec: JSON
    created_ms: int = 0
    is_deleting: bool = False
    boot_id: str = ""

    def metadata(self) -> Mapping[str, object]:
        return {
            "uid": self.uid,
            "version": self.version,
            "labels": self.labels,
            "annotations": self.annotations,
            "created_ms": self.created_ms,
        }


class ObjectStore(Protocol):
    """Objects of one source. Any call may raise Unreachable or NeedsOperator."""

    async def get(self, at: ObjectId) -> StoredObject | None: ...

    async def put(self, wanted: StoredObject) -> None:
        """Create an object, or replace labels, annotations and spec of the version that `wanted` was made from.
        Returns without an error if the object has changed since: read it again to see what holds."""
        ...

    async def delete(self, known: StoredObject) -> None:
        """Delete an object, and no later one of its name."""
        ...

    async def changed(self, at: ObjectId, version: str) -> None:
        """Return when an object may have another version than this one, which is empty for an absent object. The caller
        has a deadline."""
        ...


Stores: TypeAlias = Callable[[str], ObjectStore]
"""The store of a source."""
