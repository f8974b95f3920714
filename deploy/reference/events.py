"""The page of topics and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.composition.topics import READER, TOPICS
from deploy.reference.markdown import code, table
from deploy.reference.markdown import page as whole
from eventstore.avro.released import Schema, released
from eventstore.kafka.topics import REPLICATION_FACTOR, settings_of
from eventstore.log import DEFAULT_PARTITION_COUNT
from eventstore.topics import TopicSpec

ENVELOPE = "envelope"


def page() -> str:
    """The page of topics and events."""
    schemas = sorted(released(), key=lambda schema: schema.id)
    envelope = next(field for field in schemas[0].document["fields"] if field["name"] == ENVELOPE)["type"]
    return whole(
        "Topics and events",
        "The names of topics begin with the prefix of the plane (`dpuplane.zones`). Values are Avro in the Confluent "
        "wire format: a zero byte, four bytes of schema id, the record. Every process serves the schemas at `--http`, "
        "as a Schema Registry.",
        "## Topics",
        table(("topic", "partitions", "read by", "written by", *_setting_names()), [_topic(spec) for spec in TOPICS]),
        "## Events",
        f"Each event begins with an envelope: {_fields(envelope)} {envelope['doc']}",
        *(_event(schema) for schema in schemas),
    )


def _setting_names() -> list[str]:
    return [code(setting.name) for setting in settings_of(next(iter(TOPICS)), REPLICATION_FACTOR)]


def _topic(spec: TopicSpec) -> list[str]:
    count = str(DEFAULT_PARTITION_COUNT) if spec.is_keyed else "1"
    roles = (", ".join(sorted(roles - {READER})) for roles in (spec.readers, spec.writers))
    return [code(spec.name), count, *roles, *(setting.value for setting in settings_of(spec, REPLICATION_FACTOR))]


def _event(schema: Schema) -> str:
    document = schema.document
    rows = [(code(f["name"]), code(_type(f["type"])), f.get("doc", "")) for f in _own(document)]
    head = f"### {schema.name}\n\nSchema id {schema.id}, version {schema.version}. {document['doc']}"
    return f"{head}\n\n{table(('field', 'type', ''), rows)}"


def _own(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (field for field in document["fields"] if field["name"] != ENVELOPE)


def _fields(record: dict[str, Any]) -> str:
    return ", ".join(code(field["name"]) for field in record["fields"]) + "."


def _type(kind: Any) -> str:
    """An Avro type in short: `[string]` is a list, `{long}` a map with text keys."""
    match kind:
        case str():
            return kind.rpartition(".")[2]
        case list():
            return " or ".join(map(_type, kind))
        case {"type": "array", "items": items}:
            return f"[{_type(items)}]"
        case {"type": "map", "values": values}:
            return f"{{{_type(values)}}}"
        case {"type": "enum", "symbols": symbols}:
            return " / ".join(symbols)
        case {"name": name}:
            return str(name)
        case _:
            return str(kind["type"])
