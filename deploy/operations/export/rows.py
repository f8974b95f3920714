"""The log's events as rows: one row per record, with the fields common to all events in columns and the rest as JSON.

All events are in one table, whatever their type; an analysis reads fields without a column from `event`. A record of
many nodes can be exploded into one row per node. These rows have the columns of a node and an empty `event`, which
would otherwise repeat a thousand nodes a thousand times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import repeat
from typing import Any, NamedTuple

import msgspec

from commands.streams.event_filter import UNDECODABLE, is_wanted
from deploy.operations.export.events import EventFilter
from deploy.operations.export.rendering import rendered
from eventstore.avro.codec import decode
from eventstore.errors import Undecodable
from eventstore.log import Partition, Record
from schemas.events import (
    INFERRED,
    LEFT,
    MAX_STATE,
    PRESENT,
    SUPERSEDED,
    Event,
    MembershipChanged,
    NodesChanged,
    NodesJoined,
    NodesLeft,
    NodesSuperseded,
)

BATCHES = (NodesJoined, NodesChanged, NodesLeft, NodesSuperseded, MembershipChanged)
_PRESENT_STATES = (PRESENT, *range(SUPERSEDED + 1, MAX_STATE + 1))
STATES = {
    **dict.fromkeys(_PRESENT_STATES, "present"),
    LEFT: "left",
    INFERRED: "inferred",
    SUPERSEDED: "superseded",
}
"""The name of each state number of a node. Several numbers mean `present`: they tell which fields the agent set."""

_NONE4, _NONE6 = bytes(4), bytes(16)


class EventRow(NamedTuple):
    """One row. `item` and the fields after it describe one node of a record; only exploded tables have them."""

    topic: str
    partition: int
    offset: int
    appended_at: int
    type: str
    subject: str
    actor: str
    command_id: str
    issued_at: int | None
    event: str | None
    item: int | None = None
    node: str | None = None
    zone: str | None = None
    state: str | None = None
    created_at: int | None = None
    uid: str | None = None
    address4: str | None = None
    address6: str | None = None
    labels: dict[str, str] | None = None


_EVENT = EventRow._fields.index("event")
RECORD_FIELDS = EventRow._fields[: EventRow._fields.index("item")]
"""The columns of a table with one row per record."""


def rows(
    partition: Partition, records: Iterable[Record], event_filter: EventFilter, *, explode: bool
) -> Iterator[EventRow]:
    """The rows of the selected records."""
    for record in records:
        try:
            event = decode(record.value)
        except Undecodable as error:
            row = _undecodable(partition, record, str(error))
            if _admits(event_filter, row):
                yield row
            continue
        said = event.envelope
        head = (*partition, record.offset, record.timestamp_ms, type(event).__name__)
        row = EventRow(*head, said.subject, said.actor, said.command_id, said.issued_at_ms, None)
        if not _admits(event_filter, row):
            continue
        if explode and isinstance(event, BATCHES) and event.names:
            yield from _exploded(row, event)
        else:
            yield EventRow._make((*row[:_EVENT], _rest(event), *row[_EVENT + 1 :]))


def _undecodable(partition: Partition, record: Record, reason: str) -> EventRow:
    said = msgspec.json.encode({"reason": reason, "value": record.value.hex()}).decode()
    return EventRow(*partition, record.offset, record.timestamp_ms, UNDECODABLE, "", "", "", None, said)


def _admits(event_filter: EventFilter, row: EventRow) -> bool:
    return is_wanted(event_filter, row.type, row.subject, row.actor, row.command_id)


def _rest(event: Event) -> str:
    """An event in JSON, as `events export` prints it, without the envelope."""
    found = rendered(event)
    del found["envelope"]
    return msgspec.json.encode(found).decode()


def _exploded(row: EventRow, event: Any) -> Iterator[EventRow]:
    count = len(event.names)
    names = event.__struct_fields__

    def column(field: str) -> Iterable[Any]:
        return _spread(getattr(event, field), count) if field in names else repeat(None, count)

    zones = repeat(event.zone, count) if "zone" in names else column("zones")
    states = map(STATES.get, column("states"))
    columns = zip(
        event.names,
        zones,
        states,
        column("created_ms"),
        column("uids"),
        _addresses(getattr(event, "addresses4", b""), _NONE4, count, IPv4Address),
        _addresses(getattr(event, "addresses6", b""), _NONE6, count, IPv6Address),
        _labels(event, count),
        strict=True,
    )
    head = row[: len(RECORD_FIELDS)]
    return (EventRow._make((*head, item, *values)) for item, values in enumerate(columns))


def _spread(values: Sequence[Any], count: int) -> Iterable[Any]:
    """One value per node. A single value applies to all nodes. A column of an invalid event may have any length:
    missing values are None."""
    if len(values) == 1:
        return repeat(values[0], count)
    return [*values[:count], *repeat(None, count - len(values))]


def _addresses(packed: bytes, none: bytes, count: int, kind: Any) -> Iterable[str | None]:
    width = len(none)
    found = (packed[at : at + width] for at in range(0, count * width, width))
    return (str(kind(each)) if len(each) == width and each != none else None for each in found)


def _labels(event: Any, count: int) -> Iterable[dict[str, str] | None]:
    if "label_sets" not in event.__struct_fields__:
        return repeat(None, count)
    sets = event.label_sets
    return (
        sets[place] if place is not None and 0 <= place < len(sets) else None
        for place in _spread(event.label_index, count)
    )
