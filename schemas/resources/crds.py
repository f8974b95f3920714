"""CustomResourceDefinitions from the models: structural schemas, as the API server requires them.

Pydantic's JSON schema differs from a structural schema in four ways: it refers to definitions, has titles, writes an
optional field as `anyOf` with null, and a constant as `const`. Only these are translated. A field that is an object in
one generation of an API and a list in another becomes one schema without a type, as a structural schema has no unions.

The API server gets the defaults of single values in `spec`, so `kubectl get -o yaml` shows them. It gets no defaults in
the `status` of the plane's kinds: they would make an object differ from what its writer sent. The default of an object
is written under DEFAULT, as the default of the model's field serves the code.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from schemas.resources.kinds import Column, Kind

DEFAULT = "x-default"
"""The key of a field's `json_schema_extra` for a default that is an object."""

_DROPPED = frozenset({"title", "$defs"})
_KEEP = {"helm.sh/resource-policy": "keep"}


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural_schema(kind)},
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    if kind.has_status:
        version["subresources"] = {"status": {}}
    metadata: dict[str, Any] = {"annotations": _KEEP} if kind.keeps_definition else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {**metadata, "name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "versions": [version],
        },
    }


def structural_schema(kind: Kind) -> dict[str, Any]:
    """The schema of an object of a kind."""
    schema = kind.model.model_json_schema(by_alias=True)
    found: dict[str, Any] = _translated(schema, schema.get("$defs", {}))
    properties = found["properties"]
    if kind.is_ours and "spec" not in found.get("required", ()):
        properties["spec"]["default"] = {}  # rules about changes run only where the earlier object has the field
    if kind.is_ours and "status" in properties:
        properties["status"] = _without_defaults(properties["status"])
    found["properties"] = {
        "apiVersion": {"type": "string", "description": "The version of this schema of the object."},
        "kind": {"type": "string", "description": "The kind of the object."},
        "metadata": {"type": "object"},
        **properties,
    }
    return found


def _translated(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _translated({**target, **{key: value for key, value in schema.items() if key != "$ref"}}, definitions)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        present = options[0] if len(options) == 1 else _either(options, definitions)
        return _translated({**present, **rest}, definitions)
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DROPPED:
            continue
        if key == "properties":
            found[key] = {name: _translated(part, definitions) for name, part in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            found[key] = _translated(value, definitions)
        elif key == "default":
            if isinstance(value, str | int):
                found[key] = value
        elif key == DEFAULT:
            found["default"] = value
        elif key == "const":
            found["enum"] = [value]
        elif key == "description":
            found[key] = inspect.cleandoc(value).replace("\n", " ")
        else:
            found[key] = value
    return found


def _either(options: list[dict[str, Any]], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object or a list. Keywords about objects say nothing about lists, and the reverse. Only a schema
    that preserves unknown fields may have no type; fields inside the listed ones are still checked."""
    found: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
    for option in options:
        part = _translated(option, definitions)
        found |= {key: value for key, value in part.items() if key not in ("type", "description")}
    return found


def _without_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in schema.items() if key != "default"}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = _without_defaults(found[key])
    if "properties" in found:
        found["properties"] = {name: _without_defaults(part) for name, part in found["properties"].items()}
    return found


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        found["description"] = column.description
    return found | ({"priority": column.priority} if column.priority else {})
