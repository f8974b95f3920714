"""Converts views of the folds to messages: a NamedTuple or Struct becomes the message whose fields it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from projections.rules.policies import Policy
from schemas.api import dpuplane_pb2 as pb

M = TypeVar("M", bound=Message)


def to_message(kind: type[M], view: Any, **more: Any) -> M:
    """The message with the fields of a view, plus the given fields."""
    return kind(**_fields(view), **more)


def _fields(view: Any) -> dict[str, Any]:
    names = view.__struct_fields__ if isinstance(view, msgspec.Struct) else view._fields
    return {name: _plain(getattr(view, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct) or hasattr(value, "_fields"):
        return _fields(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_port_ranges(flat: Sequence[int]) -> Iterable[pb.PortRange]:
    """Port ranges from a flat list of inclusive first-last pairs."""
    return [pb.PortRange(first=first, last=last) for first, last in zip(flat[::2], flat[1::2], strict=True)]


def to_policy(row: Policy) -> pb.Policy:
    return pb.Policy(
        name=row.name,
        priority=row.priority,
        action=row.action,
        protocol=row.protocol,
        ports=to_port_ranges(row.ports),
        sources=row.sources,
        zones=row.zones,
        version=row.version,
    )
