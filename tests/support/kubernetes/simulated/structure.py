"""What the API server does with the structural schema of a custom resource: it prunes, fills defaults, and validates.

Two kinds of CEL rules are known, the transitions in the plane's own definitions: `self == oldSelf`, and the rules on a
log position, which are recognised by their message and written again in Python. The real API server judges the rules
themselves, in the contract tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.kubernetes.api import ApiError

POSITION_RULE = "logPosition must not go back"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def settled(schema: Mapping[str, Any], value: Any) -> Any:
    """The value without fields that the schema lacks, and with the defaults of those that it has."""
    if isinstance(value, list):
        return [settled(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if isinstance(rest := schema.get("additionalProperties"), Mapping):
        return {name: settled(rest, part) for name, part in value.items()}
    properties = schema.get("properties")
    if properties is None:
        return value if schema.get("additionalProperties") or not schema.get("type") else {}
    found = {}
    for name, part in properties.items():
        if name in value and not (value[name] is None and "default" in part):
            found[name] = settled(part, value[name])
        elif "default" in part:
            found[name] = settled(part, part["default"])
    return found


def check(schema: Mapping[str, Any], value: Any, old: Any, kind: str, name: str) -> None:
    """Raises ApiError 422 for a value that the schema refuses, or a transition from `old` that a rule refuses."""
    if faults := list(_faults(schema, value, old, "")):
        text = "; ".join(faults)
        raise ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}')


def _faults(schema: Mapping[str, Any], value: Any, old: Any, path: str) -> Iterator[str]:
    expected = schema.get("type")
    if expected and (not isinstance(value, _TYPES[expected]) or (isinstance(value, bool) and expected != "boolean")):
        yield f"{path}: Invalid value: must be of type {expected}"
        return
    yield from _scalar_faults(schema, value, path)
    for rule in schema.get("x-kubernetes-validations", ()):
        if old is not None and not _holds(rule, value, old):
            yield f"{path}: Invalid value: {rule['message']}"
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}: Required value"
        rest = schema.get("additionalProperties")
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name) or (rest if isinstance(rest, Mapping) else None)
            if inner is not None:
                before = old.get(name) if isinstance(old, dict) else None
                yield from _faults(inner, part, before, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(schema.get("items", {}), item, None, f"{path}[{index}]")


def _scalar_faults(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}"
    if isinstance(value, str):
        if len(value) > schema.get("maxLength", len(value)) or len(value) < schema.get("minLength", 0):
            yield f"{path}: Too long: or too short"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: Invalid value: should match '{schema['pattern']}'"
    elif isinstance(value, int | float):
        if value > schema.get("maximum", value) or value < schema.get("minimum", value):
            yield f"{path}: Invalid value: {value} is out of bounds"
    elif len(value) > schema.get("maxProperties" if isinstance(value, dict) else "maxItems", len(value)):
        yield f"{path}: Too many"


def _holds(rule: Mapping[str, Any], value: Any, old: Any) -> bool:
    if rule["rule"] == "self == oldSelf":
        return bool(value == old)
    if rule["message"] == POSITION_RULE:
        before, after = ((item.get("status") or {}).get("logPosition") or {} for item in (old, value))
        generations = after.get("generation", 0), before.get("generation", 0)
        if generations[0] != generations[1]:
            return bool(generations[0] > generations[1])
        compared = set(re.findall(r"logPosition\.\?(\w+)", rule["rule"]))
        return all(after.get(part, 0) >= before.get(part, 0) for part in compared)
    return True
