"""A filled event of every type, generated from its schema, so that every new type has golden bytes."""

from __future__ import annotations

from typing import Any

from eventstore.avro.released import Schema, released
from schemas.events import EVENTS, Envelope

EVENT_TYPES: dict[str, type[Any]] = {event.__name__: event for event in EVENTS}
NEWEST: dict[str, Schema] = {schema.name: schema for schema in sorted(released(), key=lambda schema: schema.version)}
COMMAND_ID = "018bcfe5-6800-7d8e-91b7-584a2265b1f5"
ENVELOPE = Envelope(COMMAND_ID, "subject", "?tester", 1_700_000_000_000)


def sample(name: str) -> Any:
    """An event with a non-empty value in each field."""
    fields = NEWEST[name].document["fields"]
    values = [_value(field["type"], number) for number, field in enumerate(fields)]
    return EVENT_TYPES[name](ENVELOPE, *values[1:])


def _value(kind: Any, number: int) -> Any:
    match kind:
        case "string":
            return f"text-{number}-ü"
        case "long":
            return (-1) ** number * (1 << 3 * number)
        case "boolean":
            return number % 2 == 1
        case "bytes":
            return bytes(range(number))
        case {"type": "array", "items": items}:
            return [_value(items, number), _value(items, number + 1)]
        case {"type": "map", "values": values}:
            return {"z": _value(values, number), "a": _value(values, number + 1)}
        case {"type": "record"}:
            return ENVELOPE
    raise AssertionError(f"no sample of {kind}")
