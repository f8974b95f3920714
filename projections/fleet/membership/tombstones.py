"""Tombstones of fleet, and the order of the statements that zones partitions make about a node.

Each zones partition forwards at its own pace, so statements of two partitions reach fleet in any order. Fleet's
decisions must not depend on that order. A statement is a join or a change. If two partitions state a node, the newer
statement is

1. the one of the incarnation that was created later;
2. for equal creation times, the one that was appended later;
3. for equal append times, the one that reached fleet later.

Uids are not compared: Kubernetes counts creation in whole seconds, and uids are random. Within one partition none of
this applies: the order of its log counts, and its last word on a node replaces the one before.

A leave ends the incarnation that it names and every older one. So a tombstone (creation time, append time of the last
statement, append time of the leave) ends a statement of another partition

- of an older incarnation, if it was appended no later than the leave;
- of equal creation time, if it was appended before the last statement of the node that left.

A join of an older incarnation that was appended after the leave stays in force: the caller's clock is slow, but the
join is the last request. A leave is visible to a caller once fleet has folded it. A leave does not end a later
statement of equal creation time: in that case the node had moved to another partition before the leave.

Append times of two partitions come from two clocks if the partitions have two leaders. A time ahead of the append time
of fleet's own record comes from a fast clock and is ignored: then the order of arrival at fleet decides, and a leave
ends only incarnations that are older by creation time. Clocks that differ by less than a forward takes may misorder
statements of equal creation time that were appended within that difference.

A creation time that is more than a minute ahead of fleet's own record comes from a fast clock, too: the statement that
reaches fleet later is the newer one (`projections/incarnations`).

Append times of one partition go back when its clock is corrected. A leave follows the statements of its partition in
the log. So if the last statement has a later append time than the leave, its time comes from a fast clock. This time
decides nothing, now and later: the leave ends no statement of equal creation time. The time of the leave still decides
about older incarnations.

Fleet stores tombstones, because a partition may forward an old join after it. It keeps those of MAX_TOMBSTONES nodes,
and evicts the oldest first. If more nodes than that leave while a partition cannot forward, a delayed join of that
partition may make a node a member again, because the tombstone that would have ended the join is evicted. `dpuplane
verify` names such a node. Time does not end a tombstone, as no bound on the delay of a forward is known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from eventstore.folding.state_table import StateTable
from projections.incarnations import is_older

MAX_TOMBSTONES = 100_000
"""Nodes whose tombstones are retained; they take 30 MB."""

_MAX_PER_NODE = 4
"""Tombstones of one node. More than one is needed only if an older incarnation left after a newer one."""


class Tombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of an incarnation in a zones partition: its last statement, and its leave, by append time."""

    partition: int
    created_ms: int
    last_present_ms: int
    left_ms: int

    def ends(self, created_ms: int, last_present_ms: int) -> bool:
        """Whether this leave ended a statement of another partition, if all clocks are right."""
        if created_ms < self.created_ms:
            return last_present_ms <= self.left_ms
        return created_ms == self.created_ms and last_present_ms < self.last_present_ms <= self.left_ms

    def ends_known(self, created_ms: int, last_present_ms: int, now_ms: int) -> bool:
        """Whether this leave, which fleet receives now, ended a statement that fleet has stored."""
        if max(last_present_ms, self.left_ms) <= now_ms:
            return self.ends(created_ms, last_present_ms)
        return created_ms < self.created_ms

    def ends_late(self, created_ms: int, last_present_ms: int, now_ms: int) -> bool:
        """Whether this leave, which fleet has stored, ended a statement that fleet receives now."""
        return max(last_present_ms, self.left_ms) <= now_ms and self.ends(created_ms, last_present_ms)

    def replaces(self, other: Tombstone) -> bool:
        """Whether this ends all that the other one ends."""
        if self.partition != other.partition or self.left_ms < other.left_ms:
            return False
        if self.created_ms != other.created_ms:
            return self.created_ms > other.created_ms
        return other.last_present_ms > other.left_ms or other.last_present_ms <= self.last_present_ms <= self.left_ms


class StatedNode(Protocol):
    """When a node was created, and when its zone stated it last."""

    @property
    def created_ms(self) -> int: ...
    @property
    def last_present_ms(self) -> int: ...


def is_newer(received: StatedNode, known: StatedNode, now_ms: int) -> bool:
    """Whether a received record about a node is newer than the stored one of another partition."""
    if received.created_ms != known.created_ms or max(received.last_present_ms, known.last_present_ms) > now_ms:
        return not is_older(received.created_ms, known.created_ms, now_ms)
    return received.last_present_ms >= known.last_present_ms


class TombstoneRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tombstones of one node, in the order in which fleet folded them, the last one at this offset."""

    offset: int
    tombstones: tuple[Tombstone, ...]


class Tombstones(StateTable[TombstoneRow]):
    """The tombstones in fleet, by node."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__("tombstones", TombstoneRow)
        self._order: OrderedDict[str, None] = OrderedDict()

    def rederive(self) -> None:
        """Sort the nodes in eviction order."""
        order = sorted((row.offset, name) for name, row in self.rows.items())
        self._order = OrderedDict.fromkeys(name for _, name in order)

    def note(self, tombstones: Mapping[str, Tombstone], offset: int) -> None:
        """Store the tombstones that one record of fleet adds, by node."""
        for name, tombstone in sorted(tombstones.items()):
            known = self.rows.get(name)
            others = [other for other in known.tombstones if not tombstone.replaces(other)] if known else []
            self.put(name, TombstoneRow(offset, (*others, tombstone)[-_MAX_PER_NODE:]))
            self._order[name] = None
            self._order.move_to_end(name)
        while len(self._order) > MAX_TOMBSTONES:
            self.remove(self._order.popitem(last=False)[0])

    def end(self, name: str, partition: int, created_ms: int, last_present_ms: int, *, now_ms: int) -> bool:
        """Whether this statement of a partition ended with a leave of another partition."""
        ended = self.rows.get(name)
        return ended is not None and any(
            found.partition != partition and found.ends_late(created_ms, last_present_ms, now_ms)
            for found in ended.tombstones
        )

    def end_any(
        self,
        names: Sequence[str],
        partition: int,
        created_ms: Sequence[int],
        last_present_ms: Sequence[int],
        *,
        now_ms: int,
    ) -> bool:
        """Whether one of these statements of a partition did."""
        if self.rows.keys().isdisjoint(names):
            return False
        columns = zip(names, created_ms, last_present_ms, strict=True)
        return any(self.end(name, partition, created, stated, now_ms=now_ms) for name, created, stated in columns)
