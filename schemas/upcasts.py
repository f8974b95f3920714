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


def _record(name: str, doc: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of an event: the types of its fields after the envelope, by name."""
    columns = [{"name": field, "type": kind} for field, kind in ({"envelope": _ENVELOPE} | fields).items()]
    return {"type": "record", "name": name, "namespace": "dpuplane", "doc": doc, "fields": columns}


_ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "command_id", "type": "string"},
        {"name": "subject", "type": "string"},
        {"name": "actor", "type": "string"},
        {"name": "issued_at_ms", "type": "long"},
    ],
}
_TEXTS = {"type": "array", "items": "string"}

_OBSERVED_1 = _record(
    "ResourcesObserved",
    "Observations without the versions of their objects.",
    {
        "source": "string",
        **dict.fromkeys(("kinds", "namespaces", "names", "uids", "observations"), _TEXTS),
        **dict.fromkeys(("cause_partition", "from_offset", "to_offset", "seen_offset"), "long"),
    },
)


def _without_versions(fields: Fields) -> Fields:
    """An observation without a version replaces the last one."""
    return {**fields, "resource_versions": []}


OLD_VERSIONS: tuple[OldVersion, ...] = (OldVersion(1, 37, _OBSERVED_1, _without_versions),)
