"""The plane's codec beside fastavro, for each type of event: encoding and decoding one record, in the same run.

Each side converts a Struct to bytes and back, because folds use Structs. fastavro itself works on dictionaries, so its
time includes the conversion between Structs and dictionaries. Columns have ROWS rows of distinct values, the case in
which compiled code gains least; other fields have the size that they have in a log.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from eventstore.avro.codec import HEADER_BYTES, decode, encode
from eventstore.avro.released import Schema
from schemas.events import Envelope
from tests.bench.figures import Figure, median_seconds
from tests.support.samples import ENVELOPE, EVENT_TYPES, NEWEST

ROWS = 1_000
REPEATS = 100
AIM = 2.0
"""The aim of the speed-up: our own codec, which is some hundred lines, must be this many times as fast."""


def figures() -> list[Figure]:
    return [_compared(NEWEST[name]) for name in sorted(NEWEST)]


def _compared(schema: Schema) -> Figure:
    event, make = _event(schema), EVENT_TYPES[schema.name]
    parsed, body = parse_schema(schema.document), encode(event)
    assert _encoded(parsed, event) == body[HEADER_BYTES:]
    assert _decoded(parsed, body, make) == decode(body) == event
    ours_us = _us(lambda: encode(event)) + _us(lambda: decode(body))
    theirs_us = _us(lambda: _encoded(parsed, event)) + _us(lambda: _decoded(parsed, body, make))
    return Figure(f"encode and decode {schema.label}", ours_us, "us", theirs_us, "fastavro", theirs_us / AIM, "lower")


def _us(work: Callable[[], object]) -> float:
    return median_seconds(lambda: _repeated(work)) / REPEATS * 1e6


def _repeated(work: Callable[[], object]) -> None:
    for _ in range(REPEATS):
        work()


def _encoded(parsed: Any, event: Any) -> bytes:
    body = BytesIO()
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    envelope = {name: getattr(event.envelope, name) for name in Envelope.__struct_fields__}
    schemaless_writer(body, parsed, {**fields, "envelope": envelope})
    return body.getvalue()


def _decoded(parsed: Any, body: bytes, make: type[Any]) -> Any:
    fields: Any = schemaless_reader(BytesIO(body[HEADER_BYTES:]), parsed, None)
    return make(**{**fields, "envelope": Envelope(**fields["envelope"])})


def _event(schema: Schema) -> Any:
    fields = schema.document["fields"]
    return EVENT_TYPES[schema.name](ENVELOPE, *(_value(field["type"], 0) for field in fields[1:]))


def _value(kind: Any, row: int) -> Any:
    match kind:
        case "string":
            return f"rack{row % 7}-node-{row:05}"
        case "long":
            return 1_700_000_000_000 + 997 * row
        case "boolean":
            return row % 2 == 0
        case "bytes":
            return row.to_bytes(4, "big")
        case {"type": "array", "items": ("string" | "long" | "bytes") as items}:
            return [_value(items, row) for row in range(ROWS)]
        case {"type": "array", "items": items}:
            return [_value(items, row) for row in range(4)]
        case {"type": "map", "values": values}:
            return {key: _value(values, row) for row, key in enumerate(("arch", "model"))}
    raise AssertionError(f"no value for {kind}")
