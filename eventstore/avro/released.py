"""The Avro schemas that were ever released, with the ids that records in the log carry.

The ids are pinned in `schemas/events/ids.json`, so reading a log needs no registry: a copy of that folder reads it for
ever. A released schema is never edited. A change is a new version with a new id (schemas/upcasts.py). fastavro checks
each schema as it is loaded, because the compiled reader and writer trust it.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, NamedTuple

from fastavro import parse_schema


class Schema(NamedTuple):
    """One released version of one event type."""

    name: str
    version: int
    id: int
    document: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name}.v{self.version}"


def released() -> tuple[Schema, ...]:
    """Every schema of `schemas/events/`, by id. Reads package data; raises fastavro's SchemaParseException."""
    folder = files("schemas") / "events"
    ids: dict[str, int] = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
    schemas = (_schema(label, number, (folder / f"{label}.avsc").read_text("utf-8")) for label, number in ids.items())
    return tuple(sorted(schemas, key=lambda schema: schema.id))


def _schema(label: str, number: int, text: str) -> Schema:
    name, _, version = label.rpartition(".v")
    document = json.loads(text)
    parse_schema(document)
    return Schema(name, int(version), number, document)
