"""What a zones partition says to fleet next: the accepted changes since fleet's mark, as absolute states.

It is a function of the zone's state and the mark, so two forwarders, or one that was restarted, say the same thing of
the same range, and fleet takes whichever comes first. A node that changed again after the range is left to the range
of its last change. A record of the zone is never split: what one changes fits one forward, by the bounds on records.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from projections.columns import each, label_columns, size_of_labels, spread
from projections.rules.policies import selector
from projections.zones.joined import Joined
from projections.zones.rows import Gone, Node
from projections.zones.state import ZoneState
from schemas.events import MAX_FORWARD_BYTES, MAX_FORWARD_ITEMS, PRESENT, Envelope, MembershipChanged

_FIXED_BYTES = 1_024
_ITEM_BYTES = 48
"""What an item takes beside its name, zone and uid: addresses, numbers, and the lengths of its strings."""

_NONE6 = bytes(16)

_ZONE, _UID, _LABELS = attrgetter("zone"), attrgetter("uid"), attrgetter("labels")
_CREATED_MS, _CHANGED_MS = attrgetter("created_ms"), attrgetter("changed_ms")
_ADDRESS4, _ADDRESS6 = attrgetter("address4"), attrgetter("address6")

_Value = TypeVar("_Value", str, int)


def forward(state: ZoneState, partition: int, mark: int) -> MembershipChanged | None:
    """The next forward of zones partition `partition`; None if fleet has everything that is known here.

    `mark` is where fleet goes on. If more than that was pruned already, this view of fleet lags, and there is nothing
    right to say. Whoever appends it puts their own envelope in.
    """
    first = bisect_left(state.outgoing, mark)
    if mark < state.forwarded or first == len(state.outgoing):
        return None
    offsets = _with_room(state, first)
    items = _items(state, offsets)
    if items.size() > MAX_FORWARD_BYTES:
        more = range(2, len(offsets) + 1)
        too_many = bisect_left(more, True, key=lambda n: _items(state, offsets[:n]).size() > MAX_FORWARD_BYTES)
        offsets = offsets[: 1 + too_many]
        items = _items(state, offsets)
    return _sealed(items, partition, mark, offsets[-1] + 1)


def is_forwarded(state: ZoneState, mark: int, offset: int) -> bool:
    """Whether fleet, whose mark this is, has taken all that was accepted below `offset`, which is folded here.

    As long as anything waits, whatever it is: a node that changed below `offset` and again behind it waits there only,
    and fleet has neither of the two. Nothing waits either of what the zone was told that fleet has; this view of fleet
    may lag behind that.
    """
    return mark >= offset or (mark >= state.forwarded and not state.has_outgoing_from(mark))


class _Columns(NamedTuple):
    """What is said of each node."""

    names: list[str]
    zones: list[str]
    states: list[int]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    labels: list[dict[str, str]]
    changed_ms: list[int]


class _Items(NamedTuple):
    """What is said of each node, and the different labels of all."""

    columns: _Columns
    label_sets: list[dict[str, str]]
    label_index: list[int]

    def size(self) -> int:
        """Bytes of a forward of these, or a few more."""
        names, zones, uids = self.columns.names, self.columns.zones, self.columns.uids
        texts = len("".join((*names, *zones, *uids)))
        return _FIXED_BYTES + _ITEM_BYTES * len(names) + texts + sum(map(size_of_labels, self.label_sets))


def _with_room(state: ZoneState, first: int) -> list[int]:
    """As many records, from the one in this place on, as fit one forward by their nodes; the first always does."""
    items = count = 0
    for offset in state.outgoing[first : first + MAX_FORWARD_ITEMS]:
        items += state.fresh_in(offset)
        if items > MAX_FORWARD_ITEMS and count:
            break
        count += 1
    return state.outgoing[first : first + count]


def _items(state: ZoneState, offsets: Sequence[int]) -> _Items:
    """What these records changed and no later one has: record by record, each in the order of names."""
    parts: list[_Columns] = []
    names: list[str] = []
    changed: list[int] = []
    for offset in offsets:
        joined = state.joined_at(offset)
        if joined is None or joined.event.names != sorted(joined.event.names):
            found = sorted(state.outbox[offset])
            names += found
            changed += repeat(offset, len(found))
            continue
        if names:
            parts.append(_of_rows(state, names, changed))
            names, changed = [], []
        parts.append(_of_joined(joined))
    if names:
        parts.append(_of_rows(state, names, changed))
    columns = parts[0] if len(parts) == 1 else _Columns(*map(_in_a_row, zip(*parts, strict=True)))
    return _Items(columns, *_label_columns(columns.labels))


def _in_a_row(parts: Sequence[Any]) -> Any:
    return b"".join(parts) if isinstance(parts[0], bytes) else [*chain.from_iterable(parts)]


def _of_joined(joined: Joined) -> _Columns:
    """Of nodes that are as they joined, what their record said."""
    event, count = joined.event, len(joined.event.names)
    spread_out = spread(event)
    return _Columns(
        event.names,
        [*islice(each(joined.zones), count)],
        [PRESENT] * count,
        [*islice(spread_out.created_ms, count)],
        [*islice(spread_out.uids, count)],
        event.addresses4 or bytes(4 * count),
        event.addresses6 or bytes(16 * count),
        [*islice(spread_out.labels, count)],
        [*islice(each(joined.append_ms), count)],
    )


def _of_rows(state: ZoneState, names: Sequence[str], changed: Sequence[int]) -> _Columns:
    """Of these nodes, those whose last change is in the record at the offset that goes with it."""
    found = [(name, row) for name, row in zip(names, state.last_changes(names, changed), strict=True) if row]
    names = [name for name, _ in found]
    states = [row.state if type(row) is Gone else PRESENT for _, row in found]
    rows = [row if isinstance(row, Node) else _bare(row) for _, row in found]
    return _Columns(
        names,
        list(map(_ZONE, rows)),
        states,
        list(map(_CREATED_MS, rows)),
        list(map(_UID, rows)),
        struct.pack(f">{len(rows)}I", *map(_ADDRESS4, rows)),
        b"".join([address or _NONE6 for address in map(_ADDRESS6, rows)]),
        list(map(_LABELS, rows)),
        list(map(_CHANGED_MS, rows)),
    )


def _bare(gone: Gone) -> Node:
    return Node(gone.zone, gone.created_ms, gone.uid, 0, b"", {}, gone.changed, gone.changed_ms)


def _sealed(items: _Items, partition: int, mark: int, end: int) -> MembershipChanged:
    said = items.columns
    return MembershipChanged(
        envelope=Envelope("", f"zones/{partition}", "", 0),
        cause_partition=partition,
        from_offset=mark,
        to_offset=end,
        earliest_ms=min(said.changed_ms),
        zones=_column(said.zones),
        names=said.names,
        states=_column(said.states),
        created_ms=_column(said.created_ms),
        uids=_column(said.uids),
        addresses4=said.addresses4 if any(said.addresses4) else b"",
        addresses6=said.addresses6 if any(said.addresses6) else b"",
        label_sets=items.label_sets,
        label_index=items.label_index,
    )


def _label_columns(labels: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], list[int]]:
    distinct = {id(each): each for each in labels}  # nodes that joined together share theirs
    sets, numbers = label_columns(map(selector, distinct.values()))
    if len(sets) < 2:
        return sets, numbers
    number_of = dict(zip(distinct, numbers, strict=True))
    return sets, list(map(number_of.__getitem__, map(id, labels)))


def _column(values: list[_Value]) -> list[_Value]:
    """One value stands for all, if they are equal."""
    return values[:1] if values.count(values[0]) == len(values) else values
