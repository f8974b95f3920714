"""Tombstones of fleet, and the order of the updates of a node that come from different partitions of topic zones.

Each partition forwards at its own pace, so the updates of two partitions may reach fleet in any order. Fleet's
decisions must not depend on that order.

**Updates.** An update is a join or a change of a node. If two partitions have an update of the same node, the newer
update is

1. the update of the incarnation that was created later;
2. if both creation times are equal, the update that was appended later;
3. if both append times are equal too, the update that reached fleet later.

Uids are not compared: Kubernetes counts creation times in whole seconds, and uids are random. Two updates of one
partition are not compared by these rules: the later one in the partition's log replaces the earlier one.

**Leaves.** A leave ends the incarnation that it names, and every older one. Fleet stores it as a tombstone with three
times: the creation of the incarnation, the append of its last update, and the append of the leave. A tombstone ends an
update of another partition in two cases:

- the update belongs to an older incarnation, and was appended no later than the leave;
- the creation times are equal, and the update was appended before the last update of the incarnation that left.

A join that was appended after the leave stays in force, even if its incarnation has an earlier creation time. Such a
join is the last request, and its earlier creation time comes from a slow clock of the caller. (A leave is visible to a
caller only once fleet has folded it.) A leave also does not end an update of equal creation time that was appended
after the last update of the incarnation that left: the node had moved to another partition.

**Clocks that are fast now.** Two partitions with different leaders get their append times from different clocks. A time
that is later than the append time of fleet's own record comes from a fast clock and is ignored: the order of arrival at
fleet decides, and a leave ends only incarnations that were created earlier. Updates of equal creation time may still be
misordered if two clocks differ by less than the time that a forward takes, and both updates were appended within that
difference. A creation time that is more than a minute later than fleet's own record also comes from a fast clock; the
update that reaches fleet later is then the newer one (`projections/incarnations`).

**Clocks that were corrected.** When the clock of a partition is set back, a leave may have an earlier append time than
the node's last update, which precedes it in the log. The time of that update came from the fast clock and is ignored
for good: the leave ends no update of equal creation time. The append time of the leave still decides about older
incarnations.

**Retention.** A partition may forward an old join after another partition has forwarded the leave, so fleet stores
tombstones. Time does not end a tombstone, because the delay of a forward has no known bound. Fleet keeps the tombstones
of MAX_TOMBSTONES nodes, and evicts the oldest first. If more nodes leave while a partition cannot forward, the delayed
join of that partition may make a node a member again, because the tombstone that would have ended the join was evicted.
`dpuplane verify` names such a node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from eventstore.folding.state_table import StateTable
from projections.incarnations import is_older

MAX_TOMBSTONES = 100_000
"""Maximum number of nodes with tombstones; the tombstones take 30 MB."""

_MAX_PER_NODE = 4
"""Maximum number of tombstones of one node. More than one is needed only if an older incarnation left after a newer
one."""


class Tombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of an incarnation in a partition of topic zones. `last_present_ms` is the append time of its last
    update, `left_ms` the append time of its leave."""

    partition: int
    created_ms: int
    last_present_ms: int
    left_ms: int

    def ends(self, created_ms: int, last_present_ms: int) -> bool:
        """Whether this leave ended an update of another partition, if all clocks are right."""
        if created_ms < self.created_ms:
            return last_present_ms <= self.left_ms
        return created_ms == self.created_ms and last_present_ms < self.last_present_ms <= self.left_ms

    def ends_known(self, created_ms: int, last_present_ms: int, now_ms: int) -> bool:
        """Whether this leave, which fleet receives now, ended an update that fleet has stored."""
        if max(last_present_ms, self.left_ms) <= now_ms:
            return self.ends(created_ms, last_present_ms)
        return created_ms < self.created_ms

    def ends_late(self, created_ms: int, last_present_ms: int, now_ms: int) -> bool:
        """Whether this leave, which fleet has stored, ended an update that fleet receives now."""
        return max(last_present_ms, self.left_ms) <= now_ms and self.ends(created_ms, last_present_ms)

    def replaces(self, other: Tombstone) -> bool:
        """Whether this tombstone ends every update that the other one ends."""
        if self.partition != other.partition or self.left_ms < other.left_ms:
            return False
        if self.created_ms != other.created_ms:
            return self.created_ms > other.created_ms
        return other.last_present_ms > other.left_ms or other.last_present_ms <= self.last_present_ms <= self.left_ms


class NodeUpdate(Protocol):
    """The two times by which updates are ordered: the creation of the node's incarnation, and the append of the
    update."""

    @property
    def created_ms(self) -> int: ...
    @property
    def last_present_ms(self) -> int: ...


def is_newer(received: NodeUpdate, known: NodeUpdate, now_ms: int) -> bool:
    """Whether a received record about a node is newer than the stored one of another partition."""
    if received.created_ms != known.created_ms or max(received.last_present_ms, known.last_present_ms) > now_ms:
        return not is_older(received.created_ms, known.created_ms, now_ms)
    return received.last_present_ms >= known.last_present_ms


class TombstoneRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tombstones of one node, in the order in which fleet folded them. Fleet folded the last one at `offset`."""

    offset: int
    tombstones: tuple[Tombstone, ...]


class Tombstones(StateTable[TombstoneRow]):
    """The tombstones that fleet has stored, by name of the node."""

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
        """Whether a stored leave of another partition has ended this update of a partition."""
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
        """Whether a stored leave of another partition has ended at least one of these updates of a partition. (The
        columns have one value per update.)"""
        if self.rows.keys().isdisjoint(names):
            return False
        columns = zip(names, created_ms, last_present_ms, strict=True)
        return any(self.end(name, partition, created, appended, now_ms=now_ms) for name, created, appended in columns)
