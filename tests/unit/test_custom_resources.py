"""The definitions of custom resources: bounded in every field, described for people, and equal to the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from deploy.kubernetes import stale
from schemas.resources import KINDS
from schemas.resources.crds import definition, structural_schema
from schemas.resources.kinds import Kind

Schema = Mapping[str, Any]

BOUNDS = {
    "string": ({"maxLength"}, {"enum"}, {"format"}),
    "integer": ({"minimum", "maximum"}, {"minimum", "format"}),
    "boolean": (set[str](),),
    "array": ({"maxItems"},),
    "object": ({"properties"}, {"maxProperties"}),
}
"""For each type, the sets of keywords of which one bounds its values."""

KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def parts_of(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema in a schema, with its path; without the three fields that every object has."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from parts_of(part, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from parts_of(schema[key], path + suffix)


def test_the_manifests_and_their_copies_in_the_chart_are_current() -> None:
    assert stale() == [], "run `make docs`, and commit what it writes"


@KIND
def test_every_field_is_bounded(kind: Kind) -> None:
    for path, schema in parts_of(structural_schema(kind)):
        assert any(keywords <= schema.keys() for keywords in BOUNDS[schema["type"]]), f"{path} has no bound"


@KIND
def test_every_free_text_has_a_pattern(kind: Kind) -> None:
    free = [
        path
        for path, schema in parts_of(structural_schema(kind))
        if schema["type"] == "string" and not schema.keys() & {"pattern", "enum", "format"}
    ]
    assert free == [".status.conditions[].message"]


@KIND
def test_explain_describes_every_field(kind: Kind) -> None:
    for path, schema in parts_of(structural_schema(kind)):
        is_named = path.rpartition(".")[2].isalpha()
        assert not is_named or schema.get("description"), f"{path} has no description"


@KIND
def test_a_schema_is_structural(kind: Kind) -> None:
    forbidden = {"$ref", "$defs", "anyOf", "allOf", "oneOf", "title", "const", "exclusiveMinimum", "uniqueItems"}
    for path, schema in parts_of(structural_schema(kind)):
        assert not forbidden & schema.keys(), path
        assert "type" in schema, path


@KIND
def test_a_status_has_no_defaults(kind: Kind) -> None:
    with_default = [path for path, schema in parts_of(structural_schema(kind)) if "default" in schema]
    assert [path for path in with_default if path.startswith(".status")] == []


@KIND
def test_a_position_never_goes_back(kind: Kind) -> None:
    schema = structural_schema(kind)
    (rule,) = [rule for rule in schema["x-kubernetes-validations"] if "logPosition" in rule["rule"]]
    assert rule["fieldPath"] == ".status.logPosition"
    position = schema["properties"]["status"]["properties"]["logPosition"]["properties"]
    named = set(rule["rule"].replace(".orValue(0)", "").split()) - {"||", "&&", "(", ")"}
    assert {word.rpartition("?")[2].rstrip(")") for word in named if "?" in word} <= position.keys()


@KIND
def test_columns_point_at_fields(kind: Kind) -> None:
    paths = {path for path, _ in parts_of(structural_schema(kind))}
    for column in definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"]
        assert path.startswith((".metadata.", ".status.conditions[?")) or path in paths, path


def test_names_are_unique() -> None:
    names = [name for kind in KINDS for name in (kind.plural, kind.name.lower(), *kind.short_names)]
    assert len(names) == len(set(names))
