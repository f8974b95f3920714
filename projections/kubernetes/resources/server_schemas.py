"""The schemas of an API server, to write only fields that it has.

A cluster may have the definitions of another release of DPF. Server-side apply fails for a field that the definition
does not have (`field not declared in schema`), so such fields are left out. An enum may also lack a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

JSON = dict[str, Any]

_KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_OF_KIND = "x-kubernetes-group-version-kind"


def schemas_by_kind(document: Mapping[str, Any]) -> dict[str, JSON]:
    """The schema of each kind of an OpenAPI document of one group and version, by the name of the kind."""
    found: dict[str, JSON] = {}
    for schema in (document.get("components") or {}).get("schemas", {}).values():
        of = [each["kind"] for each in schema.get(_OF_KIND) or ()]
        if len(of) == 1 and "items" not in (schema.get("properties") or {}):
            found[of[0]] = schema
    return found


def pruned(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """A value without the fields that a schema does not have. Without a schema, the whole value."""
    if schema is None or _KEEPS_UNKNOWN in schema or "allOf" in schema or "$ref" in schema:
        return value
    if isinstance(value, Mapping):
        return _pruned_fields(value, schema)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pruned(each, schema.get("items")) for each in value]
    return value


def allowed_values(schema: Mapping[str, Any] | None, *path: str) -> Sequence[Any] | None:
    """The values that a field may have; None if any."""
    for name in path:
        schema = ((schema or {}).get("properties") or {}).get(name)
    return (schema or {}).get("enum")


def has_status(schema: Mapping[str, Any] | None) -> bool:
    """Whether objects of a kind have a status with fields."""
    status = ((schema or {}).get("properties") or {}).get("status") or {}
    return bool(status.get("properties"))


def _pruned_fields(value: Mapping[str, Any], schema: Mapping[str, Any]) -> JSON:
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    if more is True:
        return dict(value)
    return {name: pruned(each, known.get(name, more or None)) for name, each in value.items() if name in known or more}
