"""The status of an object as lines: its conditions, what it waits for, and what it wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from deploy.cli.shared import output as out
from eventstore.as_of import format_time
from schemas.api import dpuplane_pb2 as pb

_MILLISECONDS = "Ms"
"""Ends the names of fields of observations that are times."""
_SHOWN_AS = {"ordinal": "ordinal in the zone"}
"""Fields of observations whose names alone do not say what they count."""


def owner_text(owner: pb.ResourceOwner) -> str:
    """The object that wants another one."""
    return f"{_short(owner.kind)} {owner.name}"


def condition_lines(conditions: Sequence[pb.ResourceCondition]) -> Iterator[str]:
    """One line for each condition, in columns."""
    types = max((len(each.type) for each in conditions), default=0)
    reasons = max((len(each.reason) for each in conditions), default=0)
    for each in conditions:
        yield f"{each.type:<{types}}  {each.status:<7}  {each.reason:<{reasons}}  {each.message}".rstrip()


def observation_lines(found: pb.Resource) -> Iterator[str]:
    """One line for each field that was observed of the real thing behind an object, and one for the observer."""
    if found.HasField("observation"):
        seen = found.observation
        fields = msgspec.json.decode(seen.fields)
        for name in sorted(fields):
            yield _observed_line(name, fields[name])
        yield f"reported by {seen.observer}, {out.time_text(seen.time)}"


def _observed_line(name: str, value: Any) -> str:
    """A field of an observation. Observations have times in milliseconds, under names that say so."""
    if name.endswith(_MILLISECONDS) and isinstance(value, int) and value > 0:
        return f"{name.removesuffix(_MILLISECONDS)}: {format_time(value)}"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{_SHOWN_AS.get(name, name)}: {text}"


def cause_lines(causes: Sequence[pb.ResourceCause]) -> Iterator[str]:
    """The chain of causes, indented by its depth."""
    for cause in causes:
        yield f"{'  ' * (cause.depth - 1)}{cause.message}{' *' if cause.root else ''}"


def child_lines(children: Sequence[pb.ResourceChildren]) -> Iterator[str]:
    """One line for each group of children."""
    for group in children:
        ready = f", Ready: {group.status} ({group.reason})" if group.status else ""
        if group.count == 1:
            yield f"{_short(group.kind)} {group.names[0]}{ready}"
        else:
            more = f" and {group.count - len(group.names)} more" if group.count > len(group.names) else ""
            yield f"{group.count} {_short(group.kind)}s: {', '.join(group.names)}{more}{ready}"


def _short(kind: str) -> str:
    return kind.partition(".")[0]
