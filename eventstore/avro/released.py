"""The Avro schemas that were ever released, with the ids that records in the log carry.

The schema of an event type is derived from its Struct, and its id is in the Struct: reading a log needs no registry. A
released schema never changes (a test pins ids, schemas and bytes); a change is a new version with a new id
(schemas/upcasts.py). fastavro checks each schema, because the compiled reader and writer trust it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from fastavro import parse_schema
from msgspec import structs

from schemas.events import EVENTS, Event
from schemas.upcasts import OLD_VERSIONS, OldVersion

_NAMESPACE = "dpuplane"

_PRIMITIVES = {str: "string", int: "long", bool: "boolean", bytes: "bytes"}


class Schema(NamedTuple):
    """One released version of one event type."""

    name: str
    version: int
    id: int
    document: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name}.v{self.version}"


def released(
    events: Iterable[type[Event]] = EVENTS, old_versions: Sequence[OldVersion] = OLD_VERSIONS
) -> tuple[Schema, ...]:
    """The schemas of these event types and of their old versions, by id. Raises fastavro's SchemaParseException."""
    schemas = [Schema(old.document["name"], old.version, old.id, old.document) for old in old_versions]
    for event in events:
        version = 1 + sum(old.document["name"] == event.__name__ for old in old_versions)
        schemas.append(Schema(event.__name__, version, event.schema_id, _record(event)))
    for schema in schemas:
        parse_schema(schema.document)
    return tuple(sorted(schemas, key=lambda schema: schema.id))


def _record(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct)
    fields = [_field(field, hints[field.name]) for field in structs.fields(struct)]
    doc = " ".join((inspect.getdoc(struct) or "").split())
    return {"type": "record", "name": struct.__name__, "namespace": _NAMESPACE, "doc": doc, "fields": fields}


def _field(field: structs.FieldInfo, hint: Any) -> dict[str, Any]:
    found = {"name": field.name, "type": _type(hint)}
    if field.default_factory is not msgspec.NODEFAULT:
        found["default"] = field.default_factory()
    elif field.default is not msgspec.NODEFAULT:
        found["default"] = field.default
    return found


def _type(hint: Any) -> Any:
    """The Avro type of a field. Raises KeyError for a type that no event may have."""
    if get_origin(hint) is list:
        return {"type": "array", "items": _type(get_args(hint)[0])}
    if get_origin(hint) is dict:
        return {"type": "map", "values": _type(get_args(hint)[1])}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _record(hint)
    return _PRIMITIVES[hint]
