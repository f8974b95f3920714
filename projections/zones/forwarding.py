"""What a zones partition says to fleet next: the accepted changes since fleet's mark, as absolute states.

It is a function of the zone's state and the mark, so two forwarders, or one that was restarted, say the same thing of
the same range, and fleet takes whichever comes first. A node that changed again after the range is left to the range
of its last change. A record of the zone is never split: what one changes fits one forward, by the bounds on records.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple, TypeVar

from projections.columns import label_columns, size_of_labels
from projections.rules.policies import selector
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


class _Items(NamedTuple):
    """What is said of each node: its name, its state, and its row, which is bare if it is gone."""

    names: list[str]
    states: list[int]
    rows: list[Node]
    label_sets: list[dict[str, str]]
    label_index: list[int]

    def size(self) -> int:
        """Bytes of a forward of these, or a few more."""
        texts = "".join((*self.names, *map(_ZONE, self.rows), *map(_UID, self.rows)))
        return _FIXED_BYTES + _ITEM_BYTES * len(self.names) + len(texts) + sum(map(size_of_labels, self.label_sets))


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
    """What these records changed and no later one has."""
    names: list[str] = []
    changed: list[int] = []
    for offset in offsets:
        found = sorted(state.outbox[offset])
        names += found
        changed += repeat(offset, len(found))
    rows = state.last_changes(names, changed)
    if not all(rows):
        names = [name for name, row in zip(names, rows, strict=True) if row is not None]
    nodes = [row if isinstance(row, Node) else _bare(row) for row in rows if row is not None]
    states = [row.state if type(row) is Gone else PRESENT for row in rows if row is not None]
    return _Items(names, states, nodes, *_label_columns(list(map(_LABELS, nodes))))


def _label_columns(labels: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], list[int]]:
    distinct = {id(each): each for each in labels}  # nodes that joined together share theirs
    sets, numbers = label_columns(map(selector, distinct.values()))
    if len(sets) < 2:
        return sets, numbers
    number_of = dict(zip(distinct, numbers, strict=True))
    return sets, list(map(number_of.__getitem__, map(id, labels)))


def _bare(gone: Gone) -> Node:
    return Node(gone.zone, gone.created_ms, gone.uid, 0, b"", {}, gone.changed, gone.changed_ms)


def _sealed(items: _Items, partition: int, mark: int, end: int) -> MembershipChanged:
    names, states, rows, *_ = items
    addresses4, addresses6 = list(map(_ADDRESS4, rows)), list(map(_ADDRESS6, rows))
    return MembershipChanged(
        envelope=Envelope("", f"zones/{partition}", "", 0),
        cause_partition=partition,
        from_offset=mark,
        to_offset=end,
        earliest_ms=min(map(_CHANGED_MS, rows)),
        zones=_column(list(map(_ZONE, rows))),
        names=names,
        states=_column(states),
        created_ms=_column(list(map(_CREATED_MS, rows))),
        uids=_column(list(map(_UID, rows))),
        addresses4=struct.pack(f">{len(rows)}I", *addresses4) if any(addresses4) else b"",
        addresses6=b"".join([address or _NONE6 for address in addresses6]) if any(addresses6) else b"",
        label_sets=items.label_sets,
        label_index=items.label_index,
    )


def _column(values: list[_Value]) -> list[_Value]:
    """One value stands for all, if they are equal."""
    return values[:1] if values.count(values[0]) == len(values) else values
