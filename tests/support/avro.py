"""Avro schema compatibility: external readers of topics must be able to read records of an older schema."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.utils import generate_many


def unreadable(written: dict[str, Any], read: dict[str, Any], records: int = 20) -> str:
    """Why schema `read` cannot read records written under schema `written`; empty if it can."""
    writer, reader = parse_schema(written), parse_schema(read)
    for record in generate_many(writer, records):
        body = BytesIO()
        schemaless_writer(body, writer, record)
        body.seek(0)
        try:
            schemaless_reader(body, writer, reader)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""
