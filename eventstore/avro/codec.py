"""Encodes events to bytes and decodes them: Avro in the Confluent wire format (0x00, schema id in 4 bytes, body).

Any Kafka tool can read the topics, given the schemas. The cost of decoding is bounded by the number of bytes of a
record, whatever lengths the record declares. Decoding ends in an event or in Undecodable, with the same result on every
replica. Encoding is deterministic: equal events are equal bytes, so the bytes of a command identify its content.

Decoding dominates the cost of folding, hence two shortcuts: one lookup by the first five bytes, and readers that build
Structs by position (eventstore/avro/reader.py). A test compares the fields of the Structs with the schemas.

This codec handles every event type, including the few types for which it is less than twice as fast as fastavro
(tests/bench/bench_codec.py prints these types). Fastavro decodes none of them, because all replicas must get the same
result for malformed bytes: fastavro reads some values of a wrong type without an error, and trusts declared lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eventstore.avro import reader as avro
from eventstore.avro import writer as avro_writer
from eventstore.avro.columns import EventColumns, Irregular, leading_fields, read_columns
from eventstore.avro.reader import RecordReader
from eventstore.avro.released import released
from eventstore.avro.writer import RecordWriter
from eventstore.errors import Undecodable
from schemas.events import EVENTS, Envelope, Event
from schemas.upcasts import OLD_VERSIONS, Fields, OldVersion, Upcast

HEADER_BYTES = 5


class _Reader(NamedTuple):
    read: RecordReader
    upcasts: tuple[Upcast, ...]
    make: type[Any]
    columns: tuple[tuple[str, str], ...]


class Codec:
    """Encodes the newest version of each event type, and decodes every released version."""

    def __init__(self, events: Iterable[type[Event]], old_versions: Sequence[OldVersion] = ()) -> None:
        structs = {event.__name__: event for event in events}
        versions = {(schema.name, schema.version): schema for schema in released(structs.values(), old_versions)}
        upcasts = {(old.document["name"], old.version): old.upcast for old in old_versions}
        self._headers = {schema.label: _header(schema.id) for schema in versions.values()}
        self._readers: dict[bytes, _Reader] = {}
        self._writers: dict[type[Any], RecordWriter] = {}
        for schema in versions.values():
            make, header = structs[schema.name], _header(schema.id)
            newest = max(version for name, version in versions if name == schema.name)
            chain = tuple(upcasts[schema.name, version] for version in range(schema.version, newest))
            read = avro.compile_reader(
                schema.document, {"Envelope": Envelope, schema.name: _by_name(schema.document) if chain else make}
            )
            self._readers[header] = _Reader(read, chain, make, leading_fields(schema.document))
            if schema.version == newest:
                self._writers[make] = avro_writer.compile_writer(schema.document, header)

    def encode(self, event: Any) -> bytes:
        """Encode an event as a record value."""
        return self._writers[type(event)](event)

    def decode(self, value: bytes) -> Any:
        """Decode a record value to an event. Raises Undecodable."""
        reader = self._readers.get(value[:HEADER_BYTES])
        if reader is None:
            raise Undecodable(_no_reader(value))
        try:
            event, end = reader.read(value, HEADER_BYTES)
            if reader.upcasts:
                event = _upcast(event, reader)
        except (IndexError, ValueError) as error:
            raise Undecodable(f"body: not a valid {reader.make.__name__}: {error}") from error
        if end != len(value):
            raise Undecodable(f"body: {len(value) - end} bytes follow the {reader.make.__name__}")
        return event

    def decode_columns(self, values: Sequence[bytes]) -> EventColumns | None:
        """Decode these values, which have the same header, into columns; None if they must be decoded one by one. Only
        the newest schema of an event type can be decoded into columns."""
        reader = self._readers.get(values[0][:HEADER_BYTES])
        if reader is None or reader.upcasts:
            return None
        try:
            return read_columns(reader.columns, values, HEADER_BYTES, self.decode)
        except (Irregular, Undecodable):
            return None

    def accepted_headers(self, names: Iterable[str]) -> frozenset[bytes]:
        """The schema headers of the records that a fold with these event names accepts.

        `Name.v2` accepts the versions of Name up to 2; a bare `Name` is `Name.v1`. The names are part
        of the fold version, so every replica begins to accept a new schema at the same record.
        """
        admitted: set[bytes] = set()
        for name in names:
            base, _, version = name.partition(".v")
            admitted.update(self._headers[f"{base}.v{older}"] for older in range(1, int(version or 1) + 1))
        return frozenset(admitted)


def _header(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def _by_name(document: Mapping[str, Any]) -> Callable[..., Fields]:
    names = [field["name"] for field in document["fields"]]
    return lambda *values: dict(zip(names, values, strict=True))


def _upcast(fields: Fields, reader: _Reader) -> Any:
    try:
        for upcast in reader.upcasts:
            fields = upcast(fields)
        return reader.make(**fields)
    except Exception as error:  # an upcast does not handle the values of this record
        raise ValueError(repr(error)) from error


def _no_reader(value: bytes) -> str:
    if len(value) < HEADER_BYTES or value[0]:
        return f"value: {len(value)} bytes must begin with 0x00 and a schema id"
    return f"schema id: {int.from_bytes(value[1:HEADER_BYTES], 'big')} is not in this program's registry"


_CODEC = Codec(EVENTS, OLD_VERSIONS)


def encode(event: Event) -> bytes:
    """Encode an event as a record value."""
    return _CODEC.encode(event)


decode: Callable[[bytes], Event] = _CODEC.decode
"""Decodes a record value to an event of the newest version. Raises Undecodable."""


def decode_columns(values: Sequence[bytes]) -> EventColumns | None:
    """Decode these values, which begin with the same header, into columns; None if they must be decoded one by one."""
    return _CODEC.decode_columns(values)


def accepted_headers(names: Iterable[str]) -> frozenset[bytes]:
    """The schema headers (HEADER_BYTES bytes) of the records that a fold with these event names accepts."""
    return _CODEC.accepted_headers(names)
