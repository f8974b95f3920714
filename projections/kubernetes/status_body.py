"""The status of an object in two parts: its content, and the stamps that a write adds.

The content follows from the folds and decides whether a write is needed. The stamps are the position in the log and the
times of transitions. They alone are no reason to write, because the position changes with every record. The time of a
transition is the fold time, so all replicas stamp about the same time, even a replica that folds the record later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = Mapping[str, Any]
"""A part of an object, as JSON."""

_POSITION = "logPosition"
TRANSITION = "lastTransitionTime"
_SPACES = dict.fromkeys((*range(0x20), 0x7F), " ")
_STAMPS_ONLY: Document = {_POSITION: dict.fromkeys(("generation", "fleet", "zones", "cliques", "installs"), 10**18)}


class Position(NamedTuple):
    """The log position that a status was computed from: the log's generation, and the next offset of fleet and of the
    zone's partitions."""

    generation: int
    fleet: int
    zones: int = 0
    installs: int = 0

    def is_refused_after(self, written: Position) -> bool:
        """Whether the API server refuses to replace `written` by this position, because one of its numbers is lower."""
        if self.generation != written.generation:
            return self.generation < written.generation
        return any(mine < theirs for mine, theirs in zip(self, written, strict=True))


class Condition(NamedTuple):
    """One aspect of an object's state. Its message has at most 253 characters."""

    type: str
    is_true: bool
    reason: str
    message: str

    def document(self, generation: int) -> Document:
        return {
            "type": self.type,
            "status": "True" if self.is_true else "False",
            "observedGeneration": generation,
            "reason": self.reason,
            "message": self.message,
        }


class StatusBody(NamedTuple):
    """A status without its stamps, and the position and fold time at which it was computed."""

    content: Document
    position: Position
    time_ms: int


class Difference(Enum):
    """The difference between a status and the present status of an object."""

    NONE = 0
    CONTENT = 1
    CONDITION = 2
    """The status of a condition differs, or the object lacks the condition. A person may wait for the change."""


def difference(body: StatusBody, written: Document) -> Difference:
    """The difference between a status and the present status of an object, except for stamps."""
    if _statuses(body.content) != _statuses(written):
        return Difference.CONDITION
    return Difference.NONE if body.content == without_stamps(written) else Difference.CONTENT


def stamped(body: StatusBody, written: Document) -> dict[str, Any]:
    """The status that replaces the present status of an object. A condition whose status is unchanged keeps its
    time."""
    known = {found.get("type"): found for found in conditions_of(written)}
    conditions = []
    for condition in conditions_of(body.content):
        before = known.get(condition["type"], {})
        is_same = before.get("status") == condition["status"] and TRANSITION in before
        conditions.append({**condition, TRANSITION: before[TRANSITION] if is_same else to_rfc3339(body.time_ms)})
    return {**body.content, "conditions": conditions, _POSITION: body.position._asdict()}


def without_stamps(status: Document) -> dict[str, Any]:
    """The content of a status."""
    content = {name: part for name, part in status.items() if name != _POSITION}
    if "conditions" in content:
        content["conditions"] = [
            {name: part for name, part in found.items() if name != TRANSITION} for found in conditions_of(status)
        ]
    return content


def position_of(status: Document) -> Position:
    """The position in an object's status; all fields are 0 if the status has none."""
    found = status.get(_POSITION) or {}
    return Position(*(int(found.get(name, 0)) for name in Position._fields))


def transition_ms(status: Document, kind: str) -> int:
    """The time at which a condition of a status got its present status; 0 if it is not known."""
    for condition in conditions_of(status):
        if condition.get("type") == kind:
            return _from_rfc3339(condition.get(TRANSITION, ""))
    return 0


def size_of(content: Document) -> int:
    """An upper bound of the bytes of a status with this content, as JSON with its stamps.

    Go's encoder escapes `<`, `>` and `&`, so each takes six bytes.
    """
    conditions = [{**each, TRANSITION: to_rfc3339(0)} for each in conditions_of(content)]
    text = json.dumps({**content, "conditions": conditions, **_STAMPS_ONLY}, separators=(",", ":"))
    return len(text) + 5 * sum(map(text.count, "<>&"))


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters, without control characters, which the API server refuses. The end of a
    longer text is replaced by `...`."""
    text = text.translate(_SPACES)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def to_rfc3339(time_ms: int) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from_rfc3339(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return 0


def _statuses(status: Document) -> dict[str, str]:
    return {condition.get("type", ""): condition.get("status", "") for condition in conditions_of(status)}


def conditions_of(status: Document) -> Sequence[Document]:
    """The conditions of a status."""
    return status.get("conditions") or ()
