"""Definitions of kinds from a compact list of facts: one line for each field, indented below the field that has it.

A line is `NAME[!] TYPE [KEYWORD...]`; `!` says that the field is required. A type is one of Kubernetes' OpenAPI types,
one of `_TYPES`, or a shape; `[]` after it is a list of it, and `{}` a map to it. Keywords after `of` are about items.
A keyword is NAME=VALUE as in the schema (`min` and `max` for minimum and maximum), or the word atomic or immutable. A
line `- RULE` is a rule of the field above it, `items - RULE` one of its items, and `+SHAPE` adds the fields and rules
of a shape. A rule is CEL where that is short, and otherwise says what the CEL says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "intstr": {"x-kubernetes-int-or-string": True},
    "ipv4": {"type": "string", "format": "ipv4"},
    "time": {"type": "string", "format": "date-time"},
}
_LIMITS = {"min": "minimum", "max": "maximum"}
_WORD = re.compile(r"enum=\[[^\]]*\]|\S+")
_RULES = "x-kubernetes-validations"
_IMMUTABLE = "self == oldSelf"
_ATOMIC_WORD, _IMMUTABLE_WORD = "atomic", "immutable"


@dataclass(slots=True)
class _Line:
    text: str
    below: list[_Line] = field(default_factory=list)


class Facts:
    """The facts of a file: the definition of each kind, built from its lines."""

    def __init__(self, text: str) -> None:
        document = yaml.safe_load(text)
        self._kinds: Mapping[str, Mapping[str, Any]] = document["kinds"]
        self._shapes: dict[str, dict[str, Any]] = {}
        for name, lines in document["shapes"].items():
            (line,) = _outline(lines)
            self._shapes[name] = self._schema(_WORD.findall(line.text), line)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._kinds)

    def definition(self, kind: str) -> dict[str, Any]:
        """The parts of a CustomResourceDefinition that a comparison reads."""
        facts = self._kinds[kind]
        schema = self._object(_outline(facts["fields"]))
        version = {
            "name": "v1alpha1",
            "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [_column(*pair) for pair in facts.get("columns", {}).items()],
        }
        if "status" in schema["properties"]:
            version["subresources"] = {"status": {}}
        names = {"kind": kind, "listKind": f"{kind}List", "plural": facts["plural"], "singular": kind.lower()}
        return {"spec": {"group": facts["group"], "scope": "Namespaced", "names": names, "versions": [version]}}

    def _object(self, lines: list[_Line]) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "object", "properties": {}, "required": [], _RULES: []}
        for line in lines:
            if line.text.startswith("- "):
                found[_RULES].append({"rule": line.text[2:]})
            elif line.text.startswith("+"):
                shape = self._shapes[line.text[1:]]
                found["properties"] |= shape["properties"]
                found["required"] += shape["required"]
                found[_RULES] += shape[_RULES]
            else:
                name, *rest = _WORD.findall(line.text)
                found["properties"][name.removesuffix("!")] = self._schema(rest, line)
                found["required"] += [name.removesuffix("!")] if name.endswith("!") else []
        return found

    def _schema(self, words: list[str], line: _Line) -> dict[str, Any]:
        kind, *keywords = words
        rules = [below.text[2:] for below in line.below if below.text.startswith("- ")]
        for suffix, outer, key in (("[]", "array", "items"), ("{}", "object", "additionalProperties")):
            if kind.endswith(suffix):
                at = keywords.index("of") if "of" in keywords else len(keywords)
                items = [
                    _Line(one.text.removeprefix("items "), one.below) for one in line.below if one.text[:2] != "- "
                ]
                part = self._schema([kind[:-2], *keywords[at + 1 :]], _Line("", items))
                return _stated({"type": outer, key: part}, keywords[:at], rules)
        if kind == "object":
            found = self._object(line.below)
        else:
            assert len(rules) == len(line.below), f"{line.text}: only an object has fields"
            found = {_RULES: [], **(self._shapes.get(kind) or _TYPES.get(kind) or {"type": kind})}
        return _stated(found, keywords, [] if kind == "object" else rules)


def _stated(schema: dict[str, Any], words: list[str], rules: list[str]) -> dict[str, Any]:
    """The schema with more keywords and rules."""
    rules = [*([_IMMUTABLE] if _IMMUTABLE_WORD in words else []), *rules]
    keywords = dict(_keywords([word for word in words if word != _IMMUTABLE_WORD], str(schema.get("type"))))
    return schema | keywords | {_RULES: [*schema.get(_RULES, []), *({"rule": rule} for rule in rules)]}


def _keywords(words: list[str], kind: str) -> Iterator[tuple[str, Any]]:
    for word in words:
        name, equals, value = word.partition("=")
        if word == _ATOMIC_WORD:
            yield f"x-kubernetes-{'list' if kind == 'array' else 'map'}-type", "atomic"
        elif name == "map":
            yield "x-kubernetes-list-type", "map"
            yield "x-kubernetes-list-map-keys", value.split(",")
        elif name == "enum":
            values = [part.strip() for part in value.strip("[]").split(",")]
            yield name, [int(part) for part in values] if kind == "integer" else values
        else:
            assert equals, f"no keyword: {word}"
            yield _LIMITS.get(name, name), value if name == "pattern" else _value(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _column(name: str, fact: str) -> dict[str, str]:
    path, _, kind = fact.partition(" ")
    return {"name": name, "jsonPath": path, "type": kind or "string"}


def _outline(text: str) -> list[_Line]:
    """The lines at the left margin, with those that are indented below them."""
    root: list[_Line] = []
    open_lines: list[tuple[int, list[_Line]]] = [(-1, root)]
    for raw in text.splitlines():
        depth, line = len(raw) - len(raw.lstrip()), _Line(raw.strip())
        while open_lines[-1][0] >= depth:
            open_lines.pop()
        open_lines[-1][1].append(line)
        open_lines.append((depth, line.below))
    return root
