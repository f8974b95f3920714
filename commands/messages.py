"""Converts views of the folds to messages. A view is a NamedTuple or Struct. Its fields have the names of the message's
fields.

A field of a view with the suffix `_ms` is the exception. Its milliseconds become a Timestamp or a Duration:
`create_time_ms` fills the field `create_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from projections.rules.policies import Policy
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_duration, to_timestamp

M = TypeVar("M", bound=Message)

_MS = "_ms"


def to_message(kind: type[M], view: Any, **more: Any) -> M:
    """The message with the fields of a view, plus the given fields."""
    return kind(**_fields(cast(Descriptor, kind.DESCRIPTOR), view), **more)


def _fields(kind: Descriptor, view: Any) -> dict[str, Any]:
    viewed: Any = type(view)
    return {field: convert(getattr(view, name)) for name, field, convert in _conversions(kind, viewed)}


@cache
def _conversions(kind: Descriptor, view: Any) -> Sequence[tuple[str, str, Callable[[Any], Any]]]:
    """Per field of a view of this type: its name, the name of the message's field, and the conversion of its values.
    The result is cached, because a page has thousands of views."""
    names = view.__struct_fields__ if issubclass(view, msgspec.Struct) else view._fields
    fields = [(name, kind.fields_by_name[name.removesuffix(_MS)]) for name in names]
    return [(name, field.name, _conversion(name, field)) for name, field in fields]


def _conversion(name: str, field: FieldDescriptor) -> Callable[[Any], Any]:
    kind = field.message_type
    if name.endswith(_MS):
        return to_duration if kind is Duration.DESCRIPTOR else to_timestamp
    if kind is None or kind.GetOptions().map_entry:
        return lambda value: value
    return lambda views: [_fields(kind, view) for view in views]


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
