"""Manifests with one or two changes each, most of which make them invalid: a field dropped, added or given another
value."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.dpf_manifests import Given

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    443,
    1_500,
    70_000,
    2**31,
    0.5,
    5.0,
    "",
    "x",
    "static",
    "p0",
    "10.0.0.1",
    "10.0.0.300",
    "1h30m",
    "10 minutes",
    "2026-01-01T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "https://example.org/x",
    "a" * 70,
    [],
    ["x"],
    [None],
    {},
    {"x": "y"},
    {"name": "x"},
    {"automaticNodeReboot": False},
    {"matchLabels": {"a": "b"}},
)
"""Values that some field takes and others refuse."""


class Mutated(NamedTuple):
    """A changed manifest."""

    given: Given
    manifest: dict[str, Any]


class _Place(NamedTuple):
    """A value in a document: what holds it, and its key there."""

    holder: Any
    key: Any


@st.composite
def mutated(draw: st.DrawFn, chosen: list[Given], part: str = "spec") -> Mutated:
    """A changed manifest of one of these; the changes are in one part of it."""
    given = draw(st.sampled_from(chosen))
    manifest = copy.deepcopy(dict(given.manifest))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(list(_places(manifest, part))))
        match draw(st.sampled_from(("drop", "set", "set", "add", "move"))):
            case "drop":
                del place.holder[place.key]
            case "set":
                place.holder[place.key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case "add" if isinstance(place.holder, dict):
                name = draw(st.sampled_from(("unknown", "name", "force", "device", place.key)))
                place.holder[name] = copy.deepcopy(draw(st.sampled_from(VALUES)))
            case _:
                other = draw(st.sampled_from(list(_places(manifest, part))))
                place.holder[place.key] = copy.deepcopy(other.holder[other.key])
        if not manifest.get(part):
            break
    return Mutated(given, manifest)


def _places(holder: Any, key: Any) -> Iterator[_Place]:
    yield _Place(holder, key)
    value = holder[key]
    if isinstance(value, dict):
        for name in value:
            yield from _places(value, name)
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from _places(value, at)
