"""Objects of a plane without Kubernetes: they are in its log, where users edit them with `dpuplane annotate`.

The version of an object is the offset of its last change. The fold refuses an edit of another version, so edits of
several processes and users never undo each other.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from drivers.backends.bmc import Unreachable
from drivers.hosts.objects import StoredObject
from drivers.internal_events import APPEND_TIMEOUT_S
from eventstore.errors import FatalError, PlaneError
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.state import ObjectId, Resource
from schemas.events import Envelope, Event, ResourcesApplied, ResourcesDeleted

LANDING_S = 10.0
"""Longest wait for the fold to show an edit. The edit may have failed or may land later; the caller reads again."""
_ANY = -1


class LoggedObjects:
    """The objects of one source in the log."""

    def __init__(self, replica: Replica, source: str, *, now_ms: Callable[[], int], rng: Random) -> None:
        self._replica = replica
        self._source = source
        self._states = FoldStates(replica)
        self._partition = replica.partition_for(RESOURCES, source)
        self._now_ms = now_ms
        self._rng = rng

    async def get(self, at: ObjectId) -> StoredObject | None:
        row = self._row(at)
        return None if row is None else _stored(at, row)

    async def put(self, wanted: StoredObject) -> None:
        event = ResourcesApplied(
            self._envelope(wanted.at),
            self._source,
            [wanted.at.kind],
            [wanted.at.namespace],
            [wanted.at.name],
            [],
            [],
            [],
            [],
            [wanted.labels],
            [wanted.annotations],
            [msgspec.json.encode(wanted.spec, order="sorted").decode()],
            [_ANY if wanted.version else 0],
            [int(wanted.version)] if wanted.version else [],
        )
        await self._append(event, wanted)

    async def delete(self, known: StoredObject) -> None:
        at = known.at
        event = ResourcesDeleted(self._envelope(at), self._source, [at.kind], [at.namespace], [at.name], [known.uid])
        await self._append(event, known)

    async def changed(self, at: ObjectId, version: str) -> None:
        await self._replica.fold_waits.wait_for(lambda: self._version(at) != version, self._partition)

    async def _append(self, event: Event, edited: StoredObject) -> None:
        try:
            await self._replica.submit(self._partition, self._source.encode(), event, timeout_s=APPEND_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            raise Unreachable(f"log: the edit of {edited.at.name} was not confirmed: {error}") from error

    def _envelope(self, at: ObjectId) -> Envelope:
        subject = "/".join(at[1:])
        return envelope(subject, f"provisioner/{self._replica.name}", uuid7(self._now_ms(), self._rng))

    def _row(self, at: ObjectId) -> Resource | None:
        return self._states.resources(self._source).objects.rows.get(at.key)

    def _version(self, at: ObjectId) -> str:
        row = self._row(at)
        return "" if row is None else str(row.changed_offset)


def _stored(at: ObjectId, row: Resource) -> StoredObject:
    return StoredObject(
        at,
        row.uid,
        str(row.changed_offset),
        row.labels,
        row.annotations,
        msgspec.json.decode(row.spec),
        row.created_ms,
        bool(row.deleted_ms),
    )
