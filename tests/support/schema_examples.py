"""A value of a structural schema that has every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.resources.dpf.types import CONDITION_REASON, CONDITION_TYPE

TEXTS: Mapping[str, str] = {
    CONDITION_TYPE: "Ready",
    CONDITION_REASON: "Success",
    r"^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2})$": "02:00:00:00:00:01",
    r"^[a-z0-9-]+$": "metrics",
}
"""A text for each pattern of a status."""
EXCLUDED = frozenset({"skipped"})
"""Fields that exclude another one: hostOSInit has been skipped, or has succeeded."""
FORMATS: Mapping[str, str] = {"date-time": "2026-11-26T03:00:00Z", "ipv4": "10.0.0.1"}


def example(schema: Mapping[str, Any]) -> Any:
    """A value with every field, each list and map with one entry."""
    if "enum" in schema:
        return schema["enum"][-1]
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: example(part) for name, part in schema["properties"].items() if name not in EXCLUDED}
        case "object":
            others = schema.get("additionalProperties")
            return {"one": example(others)} if isinstance(others, Mapping) else {}
        case "array":
            return [example(schema["items"])]
        case "boolean":
            return True
        case "integer":
            return max(1, schema.get("minimum", 1))
        case _:
            return TEXTS[schema["pattern"]] if "pattern" in schema else FORMATS.get(schema.get("format", ""), "some")
