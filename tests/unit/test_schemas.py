"""Released schemas never change: their ids, their canonical forms, and the bytes of their events.

`python -m tests.unit.test_schemas` adds new schemas to the golden file, and never changes a line of it.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from eventstore.avro.codec import decode, encode
from eventstore.avro.released import Schema, released
from tests.support.avro import unreadable
from tests.support.samples import EVENT_TYPES, NEWEST, sample

GOLDEN = Path(__file__).parent / "golden" / "events.json"
SCHEMAS = {schema.label: schema for schema in released()}


def pinned(schema: Schema) -> dict[str, Any]:
    """The parts of a schema that must never change: id, canonical form, and for the newest version the bytes."""
    canonical = to_parsing_canonical_form(schema.document)
    facts: dict[str, Any] = {"id": schema.id, "fingerprint": fingerprint(canonical, "CRC-64-AVRO")}
    if schema == NEWEST[schema.name]:
        facts["bytes"] = encode(sample(schema.name)).hex()
    return facts


@pytest.mark.parametrize("label", SCHEMAS)
def test_a_released_schema_keeps_its_id_form_and_bytes(label: str) -> None:
    golden = json.loads(GOLDEN.read_text())[label]
    now = pinned(SCHEMAS[label])
    assert {key: golden[key] for key in now} == now


def test_no_released_schema_is_missing() -> None:
    assert json.loads(GOLDEN.read_text()).keys() == SCHEMAS.keys()


@pytest.mark.parametrize("label", json.loads(GOLDEN.read_text()))
def test_golden_bytes_are_decoded(label: str) -> None:
    event = decode(bytes.fromhex(json.loads(GOLDEN.read_text())[label]["bytes"]))
    assert type(event).__name__ == SCHEMAS[label].name
    if SCHEMAS[label] == NEWEST[SCHEMAS[label].name]:
        assert event == sample(SCHEMAS[label].name)


def test_schema_ids_are_unique_and_schemas_are_named_after_their_events() -> None:
    ids = [schema.id for schema in released()]
    assert len(set(ids)) == len(ids)
    assert {schema.name for schema in released()} == EVENT_TYPES.keys()
    assert all(schema.document["name"] == schema.name for schema in released())


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_versions_are_gapless_and_each_step_is_compatible(name: str) -> None:
    versions = sorted((s for s in released() if s.name == name), key=lambda schema: schema.version)
    assert [schema.version for schema in versions] == list(range(1, len(versions) + 1))
    for old, new in pairwise(versions):
        assert unreadable(old.document, new.document) == ""


def main() -> None:
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    added = {label: pinned(schema) for label, schema in SCHEMAS.items() if label not in golden}
    GOLDEN.write_text(json.dumps({**golden, **added}, indent=1) + "\n")
    print(f"{len(added)} added")


if __name__ == "__main__":
    main()
