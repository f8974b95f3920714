"""Checks whether zones and fleet agree on every node, at one cut of the log.

Zones decide which nodes they have, and fleet decides the content of the rule tables. Zones and fleet exchange changes
by records, which are forwarded to fleet and delivered from fleet. Even if every replica and every device equals the
log, a node may still be in a zone that it left. `verify` therefore compares the two folds with each other, node by
node:

- a node is in the zone that fleet names and in no other, with equal incarnation, addresses and labels;
- every node of fleet is in a zone too, unless the node is under a hold;
- no zone has a node that a leave in another partition should have removed.

The last rule needs more than the final states, which do not contain former nodes. The folds here therefore record every
leave and every forward. A node with a forward or delivery outstanding at the cut is pending, and is not counted as a
difference. Nodes with the same difference form one group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from eventstore.folding.fold import Fold, RecordMetadata
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET, FLEET_0, ZONES, Partition
from projections.fleet.fold import FleetFold, FleetFold2
from projections.fleet.membership.joins import MembersAdded, MembersChanged
from projections.fleet.membership.rows import Member
from projections.fleet.membership.tombstones import Tombstone
from projections.fleet.state import FleetState, OutboxEntry
from projections.fleet.views import CHANGE_REJECTED, HELD, LEAVE_REJECTED, hold_state_of, rejected_names
from projections.zones.fold import ZonesFold, ZonesFold2
from projections.zones.rows import Node, NodeTombstone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import SUPERSEDED

SHOWN = 10
"""Maximum number of node names in the sentence about a group."""


class DifferenceGroup(NamedTuple):
    """Nodes with the same difference, by name."""

    what: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.names)
        shown = ", ".join(self.names[:SHOWN]) + (f" and {count - SHOWN:,} more" if count > SHOWN else "")
        return f"{count:,} {'node' if count == 1 else 'nodes'} {self.what}: {shown}"


class Agreement(NamedTuple):
    """The counts of a comparison, and its differences. Each node without a difference is counted once.

    `equal` nodes are in the tables as in their zones; `pending` nodes have a forward or delivery outstanding. An open
    hold keeps `held` nodes in the tables after they left, or keeps their newest state out of the tables. The holds of
    `leave_rejected` and `change_rejected` nodes were rejected.
    """

    equal: int
    pending: int
    held: int
    groups: tuple[DifferenceGroup, ...]
    leave_rejected: int = 0
    change_rejected: int = 0


class _Forward(NamedTuple):
    """A forward: the record at `offset`, by which fleet took all changes of a partition before `end`."""

    end: int
    offset: int
    append_ms: int


class FoldObserver:
    """Records facts that final states do not contain: the last leave of each node by partition, and every forward that
    fleet took.
    """

    def __init__(self) -> None:
        self.leaves: dict[int, dict[str, NodeTombstone]] = {}
        self.forwards: dict[int, list[_Forward]] = {}

    def folds(self, folds: Sequence[Fold[Any]]) -> list[Fold[Any]]:
        """These folds, with the folds of zones and fleet replaced by folds that report leaves and forwards to this
        observer."""
        return [self._noting(fold) for fold in folds]

    def _noting(self, fold: Fold[Any]) -> Fold[Any]:
        if isinstance(fold, ZonesFold):
            return _NotingZoneFold(fold, self.leaves)
        if isinstance(fold, FleetFold):
            return _NotingFleetFold(fold, self.forwards)
        return fold

    def heard(self, partition: int, offset: int) -> _Forward | None:
        """The forward that brought a change to fleet; None if the change is not forwarded yet."""
        forwards = self.forwards.get(partition, [])
        index = bisect_right(forwards, offset, key=lambda forward: forward.end)
        return forwards[index] if index < len(forwards) else None


class _NotingZoneFold(ZonesFold2):
    """A fold of zones with the rules of the version that it replaces: only later versions accept later events."""

    def __init__(self, fold: ZonesFold, leaves: dict[int, dict[str, NodeTombstone]]) -> None:
        self.version, self.accepts = fold.version, fold.accepts
        self._leaves = leaves

    def evolve(self, state: ZonesState, change: ZonesChange, at: RecordMetadata) -> None:
        super().evolve(state, change, at)
        left = self._leaves.setdefault(at.partition.number, {})
        for name, gone in change.tombstones.items():
            left.pop(name, None)
            if gone.state != SUPERSEDED and gone.last_present_ms:
                left[name] = gone


class _NotingFleetFold(FleetFold2):
    """A fold of fleet with the rules of the version that it replaces, as for zones."""

    def __init__(self, fold: FleetFold, forwards: dict[int, list[_Forward]]) -> None:
        super().__init__(fold.initial_state(FLEET_0).partition_count)
        self.version, self.accepts = fold.version, fold.accepts
        self._forwards = forwards

    def evolve(self, state: FleetState, change: Any, at: RecordMetadata) -> None:
        super().evolve(state, change, at)
        if isinstance(change, MembersAdded | MembersChanged):
            forward = _Forward(change.source.to_offset, at.offset, at.append_ms)
            self._forwards.setdefault(change.source.partition, []).append(forward)


def compare(partitions: Mapping[Partition, FoldedPartition], observer: FoldObserver) -> Agreement:
    """Compare zones and fleet. Nothing is compared if one of their partitions could not be folded."""
    found = {partition: folded for partition, folded in partitions.items() if partition.topic in (ZONES, FLEET)}
    if FLEET_0 not in found or any(folded.halted for folded in found.values()):
        return Agreement(0, 0, 0, ())
    zones: dict[int, ZonesState] = {p.number: folded.state for p, folded in found.items() if p.topic == ZONES}
    return _Comparison(zones, found[FLEET_0].state, observer).result()


class _Comparison:
    """The counts and groups of one comparison."""

    def __init__(self, zones: Mapping[int, ZonesState], fleet: FleetState, observer: FoldObserver) -> None:
        self._zones = zones
        self._fleet = fleet
        self._observer = observer
        self._members: Mapping[str, Member] = fleet.members.rows.rows()
        self._undropped = _undropped(zones, fleet)
        self._seen: set[str] = set()
        self._groups: dict[str, list[str]] = {}
        self._equal = self._pending = 0
        self._held: Counter[str] = Counter()
        self._rejected = rejected_names(fleet)

    def result(self) -> Agreement:
        for number, state in sorted(self._zones.items()):
            for name, node in state.nodes.rows.items():
                self._take(number, name, node)
        for name, member in self._members.items():
            if name not in self._seen:
                self._take_member(name, member)
        groups = (DifferenceGroup(what, tuple(sorted(names))) for what, names in sorted(self._groups.items()))
        held = self._held
        leaves, changes = held[LEAVE_REJECTED], held[CHANGE_REJECTED]
        return Agreement(self._equal, self._pending, held[HELD], tuple(groups), leaves, changes)

    def _take(self, number: int, name: str, node: Node) -> None:
        """Compare a node of a zone."""
        if node.changed >= self._fleet.marks.get(number, 0) or (number, name) in self._undropped:
            self._pending += 1
            self._seen.add(name)
            return
        member = self._members.get(name)
        what = _difference(node, member) or self._ended(number, name, node)
        if member is not None and member.zone == node.zone:
            self._seen.add(name)
        if what:
            self._groups.setdefault(what, []).append(name)
        elif member is not None and member.delayed_by >= 0:
            self._held[hold_state_of(member, rejected=name in self._rejected)] += 1
        else:
            self._equal += 1

    def _take_member(self, name: str, member: Member) -> None:
        """Classify a member of fleet that its zone does not have."""
        if member.held:
            self._held[hold_state_of(member, rejected=name in self._rejected)] += 1
        elif self._is_pending(name):
            self._pending += 1
        else:
            what = f"that fleet has in zone {member.zone}, and the zone does not have"
            self._groups.setdefault(what, []).append(name)

    def _is_pending(self, name: str) -> bool:
        """Whether the node left a zone, and this leave is not forwarded to fleet yet."""
        tombstones = ((number, state.tombstones.rows.get(name)) for number, state in self._zones.items())
        marks = self._fleet.marks
        return any(gone is not None and gone.changed >= marks.get(number, 0) for number, gone in tombstones)

    def _ended(self, number: int, name: str, node: Node) -> str:
        """The difference if a leave in another zone should have removed this node; "" if there is no such leave."""
        for other, leaves in sorted(self._observer.leaves.items()):
            gone = leaves.get(name)
            if other == number or gone is None or name in self._zones[other].nodes.rows:
                continue
            heard, told = self._observer.heard(number, node.changed), self._observer.heard(other, gone.changed)
            if heard is None or told is None:
                continue
            now_ms = max(heard, told, key=lambda forward: forward.offset).append_ms
            tombstone = Tombstone(other, gone.created_ms, gone.last_present_ms, gone.changed_ms)
            if tombstone.ends_late(node.created_ms, node.changed_ms, now_ms):
                return f"that zone {node.zone} has, in spite of a leave from zone {gone.zone}"
        return ""


def _difference(node: Node, member: Member | None) -> str:
    """The difference between a zone's node and fleet's member; "" if they are equal."""
    if member is None or member.held:
        return f"that zone {node.zone} has, and fleet does not have"
    if member.zone != node.zone:
        return f"that zone {node.zone} has, and fleet has in zone {member.zone}"
    if (member.created_ms, member.uid) != (node.created_ms, node.uid):
        return f"that zone {node.zone} has, and fleet has in another incarnation"
    if (member.address4 or member.contested4, member.address6 or member.contested6) != (node.address4, node.address6):
        return f"that zone {node.zone} has, and fleet has with other addresses"
    return f"that zone {node.zone} has, and fleet has with other labels" if member.labels != node.labels else ""


def _undropped(zones: Mapping[int, ZonesState], fleet: FleetState) -> set[tuple[int, str]]:
    """The superseded nodes, by partition and name, whose removal fleet has not yet delivered to their zones."""
    entry = chain.from_iterable(_waiting(fleet, number, state) for number, state in zones.items())
    return {(record.partition, name) for record in entry for name in record.names}


def _waiting(fleet: FleetState, number: int, state: ZonesState) -> Iterator[OutboxEntry]:
    return (entry for entry in fleet.outbox_queues.get(number, ()) if entry.offset >= state.fleet_mark)
