"""Forwards of a zones partition to fleet: the accepted changes that fleet has not taken yet, as absolute states.

A forward is a function of the zone's state and of fleet's mark, the offset below which fleet has taken all changes of
the partition. So two forwarders, or a restarted one, build the same record for the same range, and fleet takes the
first. A record of the zone is never split: the changes of one record fit one forward, by the bounds on records.

A forward of a range leaves out the nodes that changed again after the range: each node is in the forward of its last
change. So the first item that fleet receives about a node may be its tombstone. If another partition has an older
incarnation of the node, the leave ends that incarnation too. A tombstone therefore names the incarnation that left, and
the append time of its last join or change (`last_present_ms`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from projections.columns import label_columns, size_of_labels
from projections.rules.policies import selector
from projections.zones.rows import CauseRow, Node, NodeTombstone
from projections.zones.state import NO_CAUSE, ZonesState
from schemas.events import MAX_FORWARD_BYTES, MAX_FORWARD_ITEMS, PRESENT, SUPERSEDED, Envelope, MembershipChanged

_FIXED_BYTES = 1_024
_ITEM_BYTES = 48
"""Bytes of an item without its name, zone and uid: addresses, numbers, and the lengths of its strings."""

_CAUSE_BYTES = 12
"""Bytes of a command without its id and actor: the lengths of both, and the number of its items."""

_NONE6 = bytes(16)

_ZONE, _UID = attrgetter("zone"), attrgetter("uid")
_CREATED_MS, _CHANGED_MS = attrgetter("created_ms"), attrgetter("changed_ms")
_CHANGED = attrgetter("changed")
_ADDRESS4, _ADDRESS6 = attrgetter("address4"), attrgetter("address6")

_Value = TypeVar("_Value", str, int)


def forward(state: ZonesState, partition: int, mark: int) -> MembershipChanged | None:
    """The next forward of zones partition `partition`; None if fleet has all changes in this state.

    `mark` is the offset at which fleet continues. If changes from there on were pruned already, the caller's view of
    fleet lags, and the result is None. The envelope of the result has only a subject: the caller replaces the envelope
    before it appends the result.
    """
    first = bisect_left(state.outbox_offsets, mark)
    if mark < state.forwarded or first == len(state.outbox_offsets):
        return None
    offsets = _fitting_offsets(state, first)
    items, causes = _contents(state, offsets)
    if _size(items, causes) > MAX_FORWARD_BYTES:
        more = range(2, len(offsets) + 1)
        too_many = bisect_left(more, True, key=lambda n: _size(*_contents(state, offsets[:n])) > MAX_FORWARD_BYTES)
        offsets = offsets[: 1 + too_many]
        items, causes = _contents(state, offsets)
    return _with_causes(_record_of(items, partition, mark, offsets[-1] + 1), causes)


def is_forwarded(state: ZonesState, mark: int, offset: int) -> bool:
    """Whether fleet has all changes of the partition below `offset`. This state must have folded them. Fleet has every
    change below `mark`, so the result is true if `mark` is at or after `offset`. With a lower mark, the result is true
    only if the outbox has no entry at or after `mark`. Entries after `offset` count too: the outbox has only the last
    change of each node, so such an entry may have replaced a change below `offset` that fleet lacks. A mark below
    `forwarded` comes from a lagging view of fleet, and proves nothing.
    """
    return mark >= offset or (mark >= state.forwarded and not state.has_unforwarded_from(mark))


class _Items(NamedTuple):
    """The items as columns. `label_sets` has the distinct label sets, `label_index` the index of each node's set."""

    names: list[str]
    zones: list[str]
    states: list[int]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    changed_ms: list[int]
    last_present_ms: list[int]
    changed: list[int]
    label_sets: list[dict[str, str]]
    label_index: list[int]


class _CauseRun(NamedTuple):
    """A run of consecutive items with the same cause: the command, and the number of items."""

    cause: CauseRow
    items: int


def _contents(state: ZonesState, offsets: Sequence[int]) -> tuple[_Items, list[_CauseRun]]:
    """The items of these records, and the commands that caused them."""
    items = _items(state, offsets)
    return items, _causes(state, items)


def _size(items: _Items, causes: Sequence[_CauseRun]) -> int:
    """An upper estimate of the bytes of a forward of these items."""
    texts = len("".join((*items.names, *items.zones, *items.uids)))
    labels = sum(map(size_of_labels, items.label_sets))
    causes_size = sum(_CAUSE_BYTES + len(cause.command_id) + len(cause.actor.encode()) for cause, _ in causes)
    return _FIXED_BYTES + causes_size + _ITEM_BYTES * len(items.names) + texts + labels


def _fitting_offsets(state: ZonesState, first: int) -> list[int]:
    """The offsets of the leading records, from this outbox index on, whose nodes fit one forward; at least one."""
    items = count = 0
    for offset in state.outbox_offsets[first : first + MAX_FORWARD_ITEMS]:
        items += state.latest_changes_in(offset)
        if items > MAX_FORWARD_ITEMS and count:
            break
        count += 1
    return state.outbox_offsets[first : first + count]


def _items(state: ZonesState, offsets: Sequence[int]) -> _Items:
    """The changes of these records that no later record superseded: record by record, each in the order of names."""
    names: list[str] = []
    changed: list[int] = []
    for offset in offsets:
        names_of_record = sorted(state.outbox[offset])
        names += names_of_record
        changed += repeat(offset, len(names_of_record))
    latest = [(name, row) for name, row in zip(names, state.last_changes(names, changed), strict=True) if row]
    rows = [row if isinstance(row, Node) else _node_of(row) for _, row in latest]
    return _Items(
        [name for name, _ in latest],
        list(map(_ZONE, rows)),
        [_state(row) for _, row in latest],
        list(map(_CREATED_MS, rows)),
        list(map(_UID, rows)),
        struct.pack(f">{len(rows)}I", *map(_ADDRESS4, rows)),
        b"".join([address or _NONE6 for address in map(_ADDRESS6, rows)]),
        list(map(_CHANGED_MS, rows)),
        [row.last_present_ms if type(row) is NodeTombstone else 0 for _, row in latest],
        list(map(_CHANGED, rows)),
        *_labels(rows),
    )


def _labels(rows: Sequence[Node]) -> tuple[list[dict[str, str]], list[int]]:
    """`label_columns` of these nodes. Nodes with equal labels mostly share one instance, which is sorted once."""
    instances = {id(row.labels): row.labels for row in rows}
    in_order = {number: selector(labels) for number, labels in instances.items()}
    return label_columns([in_order[id(row.labels)] for row in rows])


def _state(row: Node | NodeTombstone) -> int:
    if type(row) is NodeTombstone:
        return row.state
    assert isinstance(row, Node), "a forwarded item is a node or a tombstone"
    return SUPERSEDED + row.agent if row.agent else PRESENT


def _node_of(tombstone: NodeTombstone) -> Node:
    return Node(
        tombstone.zone, tombstone.created_ms, tombstone.uid, 0, b"", {}, tombstone.changed, tombstone.changed_ms
    )


def _record_of(items: _Items, partition: int, mark: int, end: int) -> MembershipChanged:
    earliest_ms = min(items.changed_ms)
    return MembershipChanged(
        envelope=Envelope("", f"zones/{partition}", "", 0),
        cause_partition=partition,
        from_offset=mark,
        to_offset=end,
        earliest_ms=earliest_ms,
        zones=_column(items.zones),
        names=items.names,
        states=_column(items.states),
        created_ms=_column(items.created_ms),
        uids=_column(items.uids),
        addresses4=_packed(items.addresses4),
        addresses6=_packed(items.addresses6),
        label_sets=items.label_sets,
        label_index=items.label_index,
        changed_ms=items.changed_ms if max(items.changed_ms) > earliest_ms else [],
        last_present_ms=items.last_present_ms if any(items.last_present_ms) else [],
    )


def _causes(state: ZonesState, items: _Items) -> list[_CauseRun]:
    """The commands that caused these items, in record order, one entry per run of items with the same command.

    A record that joins a single new node has no row in `causes` if the uid of the node is the command id. If the
    command gave another uid, the record has a row.
    """
    first, last, count = items.changed[0], items.changed[-1], len(items.names)
    if not state.causes.rows and state.has_one_join_actor(first, last) and items.states.count(PRESENT) == count:
        return [_CauseRun(CauseRow("", state.join_actor_of(first)), count)]
    causes: list[_CauseRun] = []
    for (offset, item_state), group in groupby(zip(items.changed, items.states, strict=True)):
        cause, count = state.cause_of(offset), sum(1 for _ in group)
        if cause is NO_CAUSE and item_state == PRESENT:
            cause = CauseRow("", state.join_actor_of(offset))
        if causes and causes[-1].cause == cause:
            count += causes.pop().items
        causes.append(_CauseRun(cause, count))
    return causes


def _with_causes(record: MembershipChanged, causes: Sequence[_CauseRun]) -> MembershipChanged:
    """This record, with the commands that caused its items, if there are any."""
    if len(causes) == 1 and causes[0].cause == NO_CAUSE:
        return record
    commands, counts = [cause for cause, _ in causes], [count for _, count in causes]
    actors, ids = [command.actor for command in commands], [command.command_id for command in commands]
    return replace(record, command_ids=ids, actors=actors, cause_items=counts)


def _packed(addresses: bytes) -> bytes:
    """A packed column; empty if every item is empty."""
    return addresses if addresses.count(0) < len(addresses) else b""


def _column(values: list[_Value]) -> list[_Value]:
    """A column; a single value if all are equal."""
    return values[:1] if values.count(values[0]) == len(values) else values
