"""Values against a structural schema, as the API server handles them: unknown fields, defaults, types and limits.

`completed` comes first: it drops nulls and unknown fields and applies defaults. `checked` compares the result with the
schema, and, for an update, leaves alone what has not changed: an object that was valid when it was written must not
become unchangeable because a later schema is stricter.
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.resources import cel
from schemas.resources.cel import ABSENT
from schemas.resources.faults import Fault
from schemas.resources.formats import is_of_format
from schemas.resources.patterns import expected

Schema = Mapping[str, Any]

_UNPRUNED = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_LISTED_MAX = 12
_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
}


def completed(schema: Schema, value: Any, path: str, faults: list[Fault]) -> Any:
    """A value with the defaults of its schema, without nulls and unknown fields. Unknown fields are faults."""
    match value:
        case dict():
            return _completed_object(schema, value, path, faults)
        case list() if "items" in schema:
            # The entries of a list that preserves unknown fields preserve them, too.
            part = {**schema["items"], _UNPRUNED: True} if schema.get(_UNPRUNED) else schema["items"]
            return [completed(part, item, f"{path}[{at}]", faults) for at, item in enumerate(value)]
        case _:
            return value


def _completed_object(schema: Schema, value: dict[str, Any], path: str, faults: list[Fault]) -> dict[str, Any]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    found: dict[str, Any] = {}
    for key, item in value.items():
        part, at = properties.get(key, others), joined(path, key)
        if part is None and not schema.get(_UNPRUNED):
            if "type" in schema or properties:
                faults.append(Fault(at, _unknown(key, properties)))
        elif part is None:
            found[key] = item
        elif item is not None:
            found[key] = completed(part, item, at, faults)
    for key, part in properties.items():
        if key not in found and "default" in part:
            found[key] = completed(part, copy.deepcopy(part["default"]), joined(path, key), faults)
    return found


def checked(schema: Schema, value: Any, older: Any, path: str) -> Iterator[Fault]:
    """The faults of a completed value."""
    is_unchanged = older is not ABSENT and _same(value, older)
    own = [] if is_unchanged else list(_own(schema, value, path))
    yield from own
    faulty = bool(own)
    for part, item, before, at in _parts(schema, value, older, path):
        for fault in checked(part, item, before, at):
            faulty = True
            yield fault
    if not faulty:  # a rule may rely on the types and limits of the fields that it reads
        yield from _broken_rules(schema, value, older, path, is_unchanged=is_unchanged)


def joined(path: str, key: str) -> str:
    """The path of a field, with the key in quotes where it is not a plain word."""
    if not key.replace("-", "_").isidentifier():
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def _unknown(key: str, properties: Mapping[str, Any]) -> str:
    if close := difflib.get_close_matches(key, properties, 1):
        return f"is no field here; {close[0]} is one"
    if not properties:
        return "is no field here; there are none"
    names = sorted(properties)
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return f"is no field here; the fields are {', '.join(names[:_LISTED_MAX])}{more}"


def _own(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    """The faults of a value apart from those of its parts."""
    if (wanted := _wrong_type(schema, value)) is not None:
        yield Fault(path, f"must be {wanted}, but is {shown(value)}")
        return
    if "enum" in schema and not any(_same(value, option) for option in schema["enum"]):
        yield Fault(path, f"must be one of {', '.join(shown(option) for option in schema['enum'])}, not {shown(value)}")
    match value:
        case str():
            yield from _text_faults(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number_faults(schema, value, path)
        case list():
            yield from _list_faults(schema, value, path)
        case dict():
            yield from _object_faults(schema, value, path)


def _wrong_type(schema: Schema, value: Any) -> str | None:
    """The type that a value should have, in words; nothing if it has it."""
    if schema.get(_INT_OR_STRING):
        return None if isinstance(value, str) or _is_integer(value) else "an integer or a string"
    match schema.get("type"):
        case None:
            fits = True
        case "integer":
            fits = _is_integer(value)
        case "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        case name:
            fits = isinstance(value, {"string": str, "boolean": bool, "object": dict, "array": list}[name])
    return None if fits else _TYPES[schema["type"]]


def _is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal as JSON. Python's false equals 0, within lists and objects, too."""
    match value:
        case dict():
            return (
                isinstance(other, dict)
                and value.keys() == other.keys()
                and all(_same(item, other[key]) for key, item in value.items())
            )
        case list():
            return isinstance(other, list) and len(value) == len(other) and all(map(_same, value, other))
        case _:
            return bool(value == other and isinstance(value, bool) == isinstance(other, bool))


def _text_faults(schema: Schema, value: str, path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minLength", 0):
        yield Fault(path, "must not be empty" if not value else f"must have at least {schema['minLength']} characters")
    if len(value) > schema.get("maxLength", len(value)):
        yield Fault(path, f"must have at most {schema['maxLength']} characters, but has {len(value)}")
    if "pattern" in schema and not cel.matches(schema["pattern"], value):
        yield Fault(path, f"must {expected(schema['pattern'])}, but is {shown(value)}")
    if "format" in schema and not is_of_format(schema["format"], value):
        yield Fault(path, f"must be of the format {schema['format']}, but is {shown(value)}")


def _number_faults(schema: Schema, value: float, path: str) -> Iterator[Fault]:
    if value < schema.get("minimum", value):
        yield Fault(path, f"must be at least {schema['minimum']}, but is {value}")
    if value > schema.get("maximum", value):
        yield Fault(path, f"must be at most {schema['maximum']}, but is {value}")
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield Fault(path, f"must fit into {bits + 1} bits, but is {value}")


def _list_faults(schema: Schema, value: list[Any], path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minItems", 0):
        yield Fault(path, f"must have at least {schema['minItems']} entries, but has {len(value)}")
    if len(value) > schema.get("maxItems", len(value)):
        yield Fault(path, f"must have at most {schema['maxItems']} entries, but has {len(value)}")
    if schema.get("x-kubernetes-list-type") == "map":
        seen = set()
        for at, item in enumerate(value):
            key = _list_key(schema, item)
            if key in seen:
                yield Fault(f"{path}[{at}]", f"must not have the key of an earlier entry, {', '.join(map(shown, key))}")
            seen.add(key)


def _object_faults(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Fault]:
    if len(value) < schema.get("minProperties", 0):
        yield Fault(path, f"must have at least {schema['minProperties']} entries, but has {len(value)}")
    if len(value) > schema.get("maxProperties", len(value)):
        yield Fault(path, f"must have at most {schema['maxProperties']} entries, but has {len(value)}")
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault(joined(path, name), "must be set")
    if "oneOf" in schema and sum(_is_chosen(option, value) for option in schema["oneOf"]) != 1:
        names = [name for option in schema["oneOf"] for name in option["required"]]
        limits = ", neither false nor empty" if any("properties" in option for option in schema["oneOf"]) else ""
        yield Fault(path, f"must have exactly one of {', '.join(names)}{limits}")


def _is_chosen(option: Schema, value: dict[str, Any]) -> bool:
    """Whether an object has the fields of one of several options, with the values that the option demands."""
    return all(
        name in value and not any(_own(option.get("properties", {}).get(name, {}), value[name], name))
        for name in option["required"]
    )


def _parts(schema: Schema, value: Any, older: Any, path: str) -> Iterator[tuple[Schema, Any, Any, str]]:
    """Each part of a value: its schema, itself, its older value and its path."""
    match value:
        case dict():
            before = older if isinstance(older, dict) and schema.get("x-kubernetes-map-type") != "atomic" else {}
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            for key, item in value.items():
                if (part := properties.get(key, others)) is not None:
                    yield part, item, before.get(key, ABSENT), joined(path, key)
        case list() if "items" in schema:
            by_key: dict[tuple[Any, ...], Any] = {}
            if schema.get("x-kubernetes-list-type") == "map" and isinstance(older, list):
                by_key = {_list_key(schema, item): item for item in older}
            for at, item in enumerate(value):
                earlier = by_key.get(_list_key(schema, item), ABSENT) if by_key else ABSENT
                yield schema["items"], item, earlier, f"{path}[{at}]"


def _list_key(schema: Schema, item: Any) -> tuple[Any, ...]:
    keys = schema["x-kubernetes-list-map-keys"]
    return tuple(json.dumps(item.get(key)) if isinstance(item, dict) else "" for key in keys)


def _broken_rules(schema: Schema, value: Any, older: Any, path: str, *, is_unchanged: bool) -> Iterator[Fault]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if is_unchanged and not cel.is_transition(rule):
            continue
        if not cel.holds(rule, value, older):
            yield Fault(_path_of(rule, path), cel.message(rule, value, older))


def _path_of(rule: Mapping[str, Any], path: str) -> str:
    """The path of the field that a rule is about. Metadata has no schema, so rules about names belong to the object."""
    if not path and "metadata.name" in rule["rule"]:
        return "metadata.name"
    return (path + str(rule.get("fieldPath", ""))).lstrip(".")


def shown(value: Any) -> str:
    """A value as JSON, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
