"""What a zones partition says to fleet next: the accepted changes since fleet's mark, as absolute states.

It is a function of the zone's state and the mark, so two forwarders, or one that was restarted, say the same thing of
the same range, and fleet takes whichever comes first. A node that changed again after the range is left to the range
of its last change. A record of the zone is never split: what one changes fits one forward, by the bounds on records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeVar

from projections.columns import size_of_labels
from projections.zone_rows import Gone, Node
from projections.zone_state import ZoneState
from schemas.events import MAX_FORWARD_BYTES, MAX_FORWARD_ITEMS, PRESENT, Envelope, MembershipChanged

_FIXED_BYTES = 1_024
_ITEM_BYTES = 48
"""What an item takes beside its name, zone and uid: addresses, numbers, and the lengths of its strings."""

_NONE4, _NONE6 = bytes(4), bytes(16)

_Item = tuple[str, Node | Gone]
_Value = TypeVar("_Value", str, int)


def forward(state: ZoneState, partition: int, mark: int) -> MembershipChanged | None:
    """The next forward of zones partition `partition`; None if fleet has everything that is known here.

    `mark` is where fleet goes on. If more than that was pruned already, this view of fleet lags, and there is nothing
    right to say. Whoever appends it puts their own envelope in.
    """
    if mark < state.forwarded:
        return None
    parcel = _Parcel()
    for position in range(bisect_left(state.outgoing, mark), len(state.outgoing)):
        offset = state.outgoing[position]
        names = sorted(state.outbox[offset])
        items = [(name, item) for name in names if (item := state.last_change(name, offset)) is not None]
        if not parcel.add(items, offset, items[0][1].changed_ms):
            break
    return parcel.sealed(partition, mark) if parcel.items else None


def is_forwarded(state: ZoneState, mark: int, offset: int) -> bool:
    """Whether fleet, whose mark this is, has taken all that was accepted below `offset`, which is folded here."""
    waiting = state.outgoing
    first = bisect_left(waiting, mark)
    return mark >= offset or first == len(waiting) or waiting[first] >= offset


class _Parcel:
    """Items of one forward, and what they take."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._labels = _LabelSets()
        self._bytes = _FIXED_BYTES
        self._last = -1
        self._earliest_ms = -1

    def add(self, items: Sequence[_Item], offset: int, append_ms: int) -> bool:
        """Take the items of one record, if there is room; the first always fits."""
        size = sum(_ITEM_BYTES + len(name) + len(row.zone) + len(row.uid) for name, row in items)
        size += self._labels.take(row.labels for _, row in items if isinstance(row, Node))
        fits = len(self.items) + len(items) <= MAX_FORWARD_ITEMS and self._bytes + size <= MAX_FORWARD_BYTES
        if self.items and not fits:
            return False
        self.items += items
        self._bytes += size
        self._last = offset
        self._earliest_ms = append_ms if self._earliest_ms < 0 else min(self._earliest_ms, append_ms)
        return True

    def sealed(self, partition: int, mark: int) -> MembershipChanged:
        rows = [row for _, row in self.items]
        nodes = [row if isinstance(row, Node) else None for row in rows]
        label_sets, label_index = self._labels.columns(nodes)
        return MembershipChanged(
            envelope=Envelope("", f"zones/{partition}", "", 0),
            cause_partition=partition,
            from_offset=mark,
            to_offset=self._last + 1,
            earliest_ms=self._earliest_ms,
            zones=_column([row.zone for row in rows]),
            names=[name for name, _ in self.items],
            states=_column([PRESENT if isinstance(row, Node) else row.state for row in rows]),
            created_ms=_column([row.created_ms for row in rows]),
            uids=_column([row.uid for row in rows]),
            addresses4=_packed(node.address4.to_bytes(4, "big") if node else _NONE4 for node in nodes),
            addresses6=_packed((node.address6 if node else b"") or _NONE6 for node in nodes),
            label_sets=label_sets,
            label_index=label_index,
        )


class _LabelSets:
    """Each label set once. Nodes that joined together share theirs, so most are found by identity."""

    def __init__(self) -> None:
        self._number_of: dict[int, int] = {}
        self._numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def take(self, labels: Iterable[dict[str, str]]) -> int:
        """Know these sets; the bytes of those that are new."""
        size = 0
        for each in labels:
            if id(each) not in self._number_of:
                key = tuple(sorted(each.items()))
                if key not in self._numbers:
                    size += size_of_labels(each)
                self._number_of[id(each)] = self._numbers.setdefault(key, len(self._numbers))
        return size

    def columns(self, nodes: Sequence[Node | None]) -> tuple[list[dict[str, str]], list[int]]:
        """The sets that these nodes have, in order of appearance, and each node's among them. Who left has none."""
        nothing: dict[str, str] = {}
        self.take([nothing])
        numbers = [self._number_of[id(node.labels if node else nothing)] for node in nodes]
        sets = list(self._numbers)
        used = {number: order for order, number in enumerate(dict.fromkeys(numbers))}
        label_sets = [dict(sets[number]) for number in used]
        return (label_sets, _column([used[number] for number in numbers])) if any(label_sets) else ([], [])


def _column(values: list[_Value]) -> list[_Value]:
    """One value stands for all, if they are equal."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _packed(addresses: Iterable[bytes]) -> bytes:
    """Nothing, if nobody has an address of the family."""
    packed = b"".join(addresses)
    return packed if packed.strip(b"\0") else b""
