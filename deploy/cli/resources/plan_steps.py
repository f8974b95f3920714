"""The plan of an apply as lines: each DPU, service and chain to which something would happen, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.api import dpuplane_pb2 as pb

_WHOLE = frozenset({"create", "remove", "start", "stop", "connect", "cut", "attach", "detach"})
"""Actions on a whole object: the fields that it has or had are not a change."""
_VALUE_CHARACTERS = 60


def plan_lines(steps: Sequence[pb.PlanStep]) -> Iterator[str]:
    """One line for each step, numbered."""
    width = len(str(len(steps)))
    for number, step in enumerate(steps, 1):
        changes = "" if step.action in _WHOLE else "; ".join(filter(None, map(_change, step.changes)))
        caused = "" if step.owner == step.name else f" (for {_named(step.owner)})"
        yield f"{number:>{width}}. {step.action} {_named(step.name)}{f': {changes}' if changes else ''}{caused}"


def _named(name: pb.ResourceName) -> str:
    where = f"{name.namespace}/" if name.namespace else ""
    return f"{name.kind.partition('.')[0]} {where}{name.name}"


def _change(change: pb.FieldChange) -> str:
    """A changed field, with the parts of it that differ if it is a mapping."""
    before, after = _value(change.before), _value(change.after)
    if isinstance(before, dict) and isinstance(after, dict):
        parts = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
        return "; ".join(f"{change.field}.{key} {_text(before.get(key))} -> {_text(after.get(key))}" for key in parts)
    return f"{change.field} {_text(before)} -> {_text(after)}"


def _value(text: str) -> Any:
    return json.loads(text) if text else None


def _text(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}..."
