"""Old versions of event types, and their upcasts: pure functions that convert an event to the next version.

A log is never rewritten. When an event type changes, its Struct takes the new shape and a new schema id. Its old schema
is then declared here for ever, with one upcast to the fields of the next version. A reader applies the upcasts of all
later versions in turn, so an upcast is written once and never changed. An upcast may use only the fields that it is
given, because every replay runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""The fields of an event by name, with its envelope (an Envelope)."""

Upcast: TypeAlias = Callable[[Fields], Fields]


class OldVersion(NamedTuple):
    """A version of an event type before the present one: its Avro schema with its id, and the upcast to the next."""

    version: int
    id: int
    document: dict[str, Any]
    upcast: Upcast


OLD_VERSIONS: tuple[OldVersion, ...] = ()
