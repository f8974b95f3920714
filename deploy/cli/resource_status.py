"""The status of an object as lines: its conditions, what it waits for, and what it wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.api import dpuplane_pb2 as pb


def owner_text(owner: pb.ResourceOwner) -> str:
    """The object that wants another one."""
    return f"{_short(owner.kind)} {owner.name}"


def condition_lines(conditions: Sequence[pb.ResourceCondition]) -> Iterator[str]:
    """One line for each condition, in columns."""
    types = max((len(each.type) for each in conditions), default=0)
    reasons = max((len(each.reason) for each in conditions), default=0)
    for each in conditions:
        yield f"{each.type:<{types}}  {each.status:<7}  {each.reason:<{reasons}}  {each.message}".rstrip()


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
