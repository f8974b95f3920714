"""Two definitions of a kind compared field by field: types, defaults, limits, rules, columns and names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Schema = Mapping[str, Any]

_PARTS = {"properties", "items", "additionalProperties", "description", "required", "allOf", "anyOf"}
_ENVELOPE = ("apiVersion", "kind", "metadata")


class Listed(NamedTuple):
    """The differences that a file lists in groups, each group with its reason."""

    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Listed:
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))
        return cls(tuple(line for group in groups for line in group["differences"] if group["reason"]))

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(line.partition(" ")[0] for line in self.lines)

    def of(self, kind: str) -> list[str]:
        """The differences of a kind, sorted."""
        return sorted(rest for name, _, rest in (line.partition(" ") for line in self.lines) if name == kind)


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """Each difference of two definitions as a line: the field, and what theirs and ours say of it."""
    (their_version,), (our_version,) = theirs["spec"]["versions"], ours["spec"]["versions"]
    for key in ("group", "scope"):
        yield from _changed(key, theirs["spec"][key], ours["spec"][key])
    for key in ("kind", "listKind", "plural", "singular", "shortNames", "categories"):
        yield from _changed(key, theirs["spec"]["names"].get(key, []), ours["spec"]["names"].get(key, []))
    for key in ("name", "subresources"):
        yield from _changed(key, their_version.get(key), our_version.get(key))
    yield from _columns(their_version, our_version)
    yield from _fields("", *(version["schema"]["openAPIV3Schema"] for version in (their_version, our_version)))


def _columns(theirs: Schema, ours: Schema) -> Iterator[str]:
    found = [
        {column["name"]: f"{column['jsonPath']} ({column['type']})" for column in side["additionalPrinterColumns"]}
        if "additionalPrinterColumns" in side
        else {}
        for side in (theirs, ours)
    ]
    for name in sorted(found[0].keys() | found[1].keys()):
        yield from _changed(f"column {name}", found[0].get(name), found[1].get(name))


def _fields(path: str, theirs: Schema, ours: Schema) -> Iterator[str]:
    yield from _keywords(path, theirs, ours)
    before, after = theirs.get("properties", {}), ours.get("properties", {})
    required = [set(side.get("required", ())) for side in (theirs, ours)]
    for name in sorted(before.keys() | after.keys()):
        at = f"{path}.{name}"
        if not path and name in _ENVELOPE:
            continue
        if name not in after:
            yield f"{at}: only theirs"
        elif name not in before:
            yield f"{at}: only ours"
        else:
            yield from _changed(f"{at}: required", name in required[0], name in required[1])
            yield from _fields(at, before[name], after[name])
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        before, after = theirs.get(key), ours.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _fields(path + suffix, before, after)
        else:
            yield from _changed(f"{path}: {key}", before is not None, after is not None)


def _keywords(path: str, theirs: Schema, ours: Schema) -> Iterator[str]:
    found = [_stated(side) for side in (theirs, ours)]
    for key in sorted(found[0].keys() | found[1].keys()):
        if key == "x-kubernetes-validations":
            rules = [{rule["rule"].replace(" ", ""): rule["rule"] for rule in side.get(key, ())} for side in found]
            for rule in sorted(rules[0].keys() - rules[1].keys()):
                yield f"{path}: rule only theirs: {' '.join(rules[0][rule].split())}"
            for rule in sorted(rules[1].keys() - rules[0].keys()):
                yield f"{path}: rule only ours: {' '.join(rules[1][rule].split())}"
        else:
            yield from _changed(f"{path}: {key}", found[0].get(key), found[1].get(key))


def _stated(schema: Schema) -> dict[str, Any]:
    """The keywords of a schema itself. An enum that is written as an `allOf` counts as one."""
    found = {key: value for key, value in schema.items() if key not in _PARTS}
    for option in schema.get("allOf", ()):
        found |= option
    if "enum" in found:
        found["enum"] = sorted(found["enum"], key=json.dumps)
    return found


def _changed(what: str, theirs: Any, ours: Any) -> Iterator[str]:
    if theirs != ours:
        yield f"{what}: {json.dumps(theirs)} -> {json.dumps(ours)}"
