"""The state of a zones partition: rows in tables, and the state derived from them.

The outbox holds the changes that fleet has not folded yet. An entry has the names of the nodes that one record changed,
by the offset of the record. The row of each node (or its tombstone) has the offset of the node's last change. So a
comparison of both offsets shows whether a later change superseded the entry, and a node is forwarded in its present
state. A record is dropped from the outbox when all of its nodes have later changes, so the outbox never has more
records than nodes, however long fleet is unavailable. The outbox is rebuilt from the rows of nodes and not saved: a
second row for each join would double the cost of a save.

The command behind a record is stored while the record is in the outbox, with one exception: a single new node whose uid
is the command's id. Most joins are of this kind, and need the command only if fleet holds them. For these the state
stores only the actor, in one row per run of records of the same actor, and the uid gives the command (forwarding).

The index of DPUs is derived too: open steps, queues, and the counts for a zone's limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from eventstore.folding.state_table import StateTable
from projections.resources.change_journal import ChangeJournal
from projections.zones.dpus.certificates import LONGEST_RETRY_MS
from projections.zones.dpus.index import DpuIndex
from projections.zones.dpus.install_interfaces import step_of
from projections.zones.nodes.new_nodes import NewNodes
from projections.zones.rows import (
    CauseRow,
    Dpu,
    DpuNetwork,
    ForwardingMarks,
    JoinActor,
    NetworkText,
    Node,
    NodeTombstone,
    ResourcesMark,
    SourceList,
    SourceSnapshot,
    WantedDpu,
    Zone,
)

_CHANGED = attrgetter("changed")
_MARKS = "marks"
NO_CAUSE = CauseRow("", "")
_NOTHING: Mapping[str, Any] = {}


class ZonesChange(NamedTuple):
    """The changes of a decision. Every node in `new` is new to this partition: neither present nor a tombstone."""

    new: NewNodes | None = None
    nodes: Mapping[str, Node] = _NOTHING
    tombstones: Mapping[str, NodeTombstone] = _NOTHING
    zones: Mapping[str, Zone | None] = _NOTHING
    snapshots: Mapping[str, SourceSnapshot | None] = _NOTHING
    lists: Mapping[str, SourceList] = _NOTHING
    dpus: Mapping[str, Dpu | None] = _NOTHING
    wanted: Mapping[str, WantedDpu | None] = _NOTHING
    resources_marks: Mapping[str, ResourcesMark] = _NOTHING
    networks: Mapping[str, DpuNetwork | None] = _NOTHING
    network_texts: Mapping[str, NetworkText] = _NOTHING
    marks: ForwardingMarks | None = None
    cause: CauseRow | None = None


Row = TypeVar("Row")


def networks_mark(partition: int) -> str:
    """The key of the mark of a resources partition that counts the ranges of network documents."""
    return f"{partition}/networks"


def _replace_rows(table: StateTable[Row], rows: Mapping[str, Row | None]) -> None:
    """Put these rows; None removes one."""
    for key, row in rows.items():
        if row is None:
            table.remove(key)
        else:
            table.put(key, row)


class ZonesState:
    """The tables of a partition of topic zones, and the data derived from them.

    Nodes, DPUs, wanted DPUs and zones are keyed by name, snapshots by `zone/source`, lists by source, and resources
    marks by the number of the partition, those of network documents with `/networks` after it. Networks of DPUs are
    keyed by name, their texts by digest: a text stays while a DPU wants it. The outbox is derived, and keyed by offset.
    Every wanted DPU has a DPU. `dpu_journal` has the names of the DPUs that changed last, `network_journal` those of
    the DPUs whose network documents did.
    """

    def __init__(self) -> None:
        self.nodes = StateTable("nodes", Node)
        self.tombstones: StateTable[NodeTombstone] = StateTable("tombstones", NodeTombstone)
        self.zone_rows: StateTable[Zone] = StateTable("zones", Zone)
        self.snapshots: StateTable[SourceSnapshot] = StateTable("snapshots", SourceSnapshot)
        self.lists: StateTable[SourceList] = StateTable("lists", SourceList)
        self.dpus: StateTable[Dpu] = StateTable("dpus", Dpu)
        self.wanted: StateTable[WantedDpu] = StateTable("wanted_dpus", WantedDpu)
        self.resources_marks: StateTable[ResourcesMark] = StateTable("resources_marks", ResourcesMark)
        self.networks: StateTable[DpuNetwork] = StateTable("dpu_networks", DpuNetwork)
        self.network_texts: StateTable[NetworkText] = StateTable("network_texts", NetworkText)
        self.marks: StateTable[ForwardingMarks] = StateTable("marks", ForwardingMarks)
        self.causes: StateTable[CauseRow] = StateTable("causes", CauseRow)
        self.join_actors: StateTable[JoinActor] = StateTable("join_actors", JoinActor)
        self.dpu_journal = ChangeJournal()
        self.network_journal = ChangeJournal()
        self._clear()

    def _clear(self) -> None:
        self.node_counts: dict[str, int] = {}
        self.outbox: dict[int, Iterable[str]] = {}
        self.outbox_offsets: list[int] = []
        self._latest_changes_in: dict[int, int] = {}
        self._actor_offsets: list[int] = []
        self.dpu_index = DpuIndex()
        self._network_users: Counter[str] = Counter()

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        return (
            self.nodes,
            self.tombstones,
            self.zone_rows,
            self.snapshots,
            self.lists,
            self.dpus,
            self.wanted,
            self.resources_marks,
            self.networks,
            self.network_texts,
            self.marks,
            self.causes,
            self.join_actors,
        )

    @property
    def fleet_mark(self) -> int:
        """The offset at which the next record caused by fleet must begin."""
        return self._mark().fleet

    @property
    def forwarded(self) -> int:
        """The offset below which all changes are known to be in fleet, and are no longer in the outbox."""
        return self._mark().forwarded

    def wanted_before(self, partition: int) -> int:
        """The offset of a resources partition at which the next record about its wanted DPUs must begin."""
        return self._resources_mark(str(partition))

    def networks_before(self, partition: int) -> int:
        """The offset of a resources partition at which the next record about network documents must begin."""
        return self._resources_mark(networks_mark(partition))

    def _resources_mark(self, key: str) -> int:
        mark = self.resources_marks.rows.get(key)
        return mark.to_offset if mark is not None else 0

    def zones(self) -> list[str]:
        """Names of the zones that exist or existed in this partition, except for deleted ones."""
        return sorted(filter(self.existing_zone, self.zone_rows.rows))

    def existing_zone(self, name: str) -> Zone | None:
        """The row of a zone; None if it was deleted and has had no node and no DPU since."""
        row = self.zone_rows.rows.get(name)
        return row if row is not None and not (row.deleted and self.is_empty(name)) else None

    def is_empty(self, zone: str) -> bool:
        """Whether a zone has no node and no DPU."""
        return not self.node_counts.get(zone) and not self.dpu_index.zone(zone).names

    def has_unforwarded_from(self, mark: int) -> bool:
        """Whether the outbox has changes at or after this mark of fleet, which fleet has not taken yet."""
        return bool(self.outbox_offsets) and self.outbox_offsets[-1] >= mark

    def has_forwarded_before(self, mark: int) -> bool:
        """Whether the outbox has changes below this mark of fleet, which fleet has taken."""
        return bool(self.outbox_offsets) and self.outbox_offsets[0] < mark

    def count_new(self, names: Sequence[str]) -> int:
        """The number of leading names that are new to the partition. A new name belongs to no node and to no tombstone
        that fleet has not folded, and does not repeat an earlier name."""
        nodes, tombstones = self.nodes.rows.keys(), self.tombstones.rows.keys()
        seen = set(names)
        if len(seen) == len(names) and nodes.isdisjoint(names) and tombstones.isdisjoint(names):
            return len(names)
        seen.clear()
        for count, name in enumerate(names):
            if name in seen or name in nodes or name in tombstones:
                return count
            seen.add(name)
        return len(names)

    def rederive(self) -> None:
        self.dpu_journal.restart()
        self.network_journal.restart()
        self._clear()
        for node in self.nodes.rows.values():
            self._count(node.zone, 1)
        forwarded = self.forwarded
        waiting: dict[int, list[str]] = {}
        rows: Iterable[tuple[str, Node | NodeTombstone]] = chain(self.nodes.rows.items(), self.tombstones.rows.items())
        for name, row in rows:
            if row.changed >= forwarded:
                waiting.setdefault(row.changed, []).append(name)
        for offset, names in sorted(waiting.items()):
            self._send(offset, names)
        self._actor_offsets = sorted(map(int, self.join_actors.rows))
        for name, dpu in sorted(self.dpus.rows.items(), key=lambda item: (item[1].since, item[0])):
            self.dpu_index.replace(name, None, dpu)
        self._network_users.update(row.digest for row in self.networks.rows.values())

    def last_changes(self, names: Sequence[str], offsets: Sequence[int]) -> Sequence[Node | NodeTombstone | None]:
        """The row or the tombstone of each node; None if the node's last change was not at the offset given for its
        name."""
        rows: list[Node | NodeTombstone | None] = [*self.nodes.get_many(names)]
        if all(rows) and list(map(_CHANGED, rows)) == offsets:
            return rows
        rows = [row or self.tombstones.rows.get(name) for name, row in zip(names, rows, strict=True)]
        return [row if row and row.changed == offset else None for row, offset in zip(rows, offsets, strict=True)]

    def cause_of(self, offset: int) -> CauseRow:
        """The command behind the record at this offset, if it has a row of its own."""
        return self.causes.rows.get(str(offset), NO_CAUSE)

    def join_actor_of(self, offset: int) -> str:
        """The actor of the single-node join of a new node at this offset."""
        place = bisect_right(self._actor_offsets, offset) - 1
        return self.join_actors.rows[str(self._actor_offsets[place])].actor if place >= 0 else ""

    def has_one_join_actor(self, first: int, last: int) -> bool:
        """Whether `join_actor_of` is the same for all records from offset `first` to offset `last`."""
        return bisect_right(self._actor_offsets, first) == bisect_right(self._actor_offsets, last)

    def latest_changes_in(self, offset: int) -> int:
        """The number of nodes and tombstones whose last change is the record at this offset."""
        return self._latest_changes_in[offset]

    def apply(self, change: ZonesChange, at: RecordMetadata) -> None:
        _replace_rows(self.zone_rows, change.zones)
        if change.new is not None:
            self._add(change.new)
        if change.nodes or change.tombstones:
            self._change_nodes(change, at)
        if change.cause is not None:
            self.causes.put(str(at.offset), change.cause)
        _replace_rows(self.snapshots, change.snapshots)
        self.lists.put_all(change.lists)
        self._change_dpus(change.dpus)
        if change.dpus or change.resources_marks:
            self.dpu_journal.record([*change.dpus, *change.wanted])
        _replace_rows(self.wanted, change.wanted)
        self.resources_marks.put_all(change.resources_marks)
        if change.networks:
            self._change_networks(change)
        if change.marks is not None:
            if change.marks.forwarded > self.forwarded:
                self._prune(change.marks.forwarded)
            self.marks.put(_MARKS, change.marks)

    def rewind(self, time_ms: int) -> None:
        """Set the fold time back to `time_ms`: lower the deadlines that lie further ahead than a full step, the next
        visits that lie further ahead than a full wait, and the times of later snapshots and lists."""
        late = {key: row for key, row in self.snapshots.rows.items() if row.issued_ms > time_ms}
        self.snapshots.put_all({key: replace(row, issued_ms=time_ms) for key, row in sorted(late.items())})
        lists = {source: row for source, row in self.lists.rows.items() if row.issued_ms > time_ms}
        self.lists.put_all({source: replace(row, issued_ms=time_ms) for source, row in sorted(lists.items())})
        rows: dict[str, Dpu] = {}
        for name in sorted(self.dpu_index.running):
            dpu = self.dpus.rows[name]
            latest_ms = time_ms + step_of(dpu.bmc_address, dpu.phase).deadline_ms
            if dpu.deadline_ms > latest_ms:
                rows[name] = replace(dpu, deadline_ms=latest_ms)
        for name, at_ms in sorted(self.dpu_index.visits.all()):
            dpu = self.dpus.rows[name]
            if at_ms == dpu.not_before_ms > time_ms + LONGEST_RETRY_MS:
                rows[name] = replace(dpu, not_before_ms=time_ms + LONGEST_RETRY_MS)
        self._change_dpus(rows)

    def _change_dpus(self, dpus: Mapping[str, Dpu | None]) -> None:
        for name, dpu in dpus.items():
            self.dpu_index.replace(name, self.dpus.rows.get(name), dpu)
            if dpu is None:
                self.dpus.remove(name)
            else:
                self.dpus.put(name, dpu)

    def _change_networks(self, change: ZonesChange) -> None:
        """Replace the networks of DPUs, and drop the texts that no DPU wants any more."""
        self.network_texts.put_all(change.network_texts)
        self.network_journal.record(change.networks)
        left: dict[str, None] = {}
        for name, row in change.networks.items():
            old = self.networks.rows.get(name)
            if row is not None:
                self._network_users[row.digest] += 1
                self.networks.put(name, row)
            else:
                self.networks.remove(name)
            if old is not None:
                self._network_users[old.digest] -= 1
                left[old.digest] = None
        for digest in left:
            if not self._network_users[digest]:
                del self._network_users[digest]
                self.network_texts.remove(digest)

    def _add(self, new: NewNodes) -> None:
        """Add nodes that are new to the partition: from one record, or from one record per node."""
        names, zones, offsets = new.event.names, new.zones, new.offsets
        for zone, count in Counter(zones).items() if len(zones) > 1 else ((zones[0], len(names)),):
            if zone not in self.zone_rows.rows:
                self.zone_rows.put(zone, Zone())
            self._count(zone, count)
        self.nodes.add_all(dict(zip(names, new.rows(), strict=True)))
        if new.command_ids:
            self.causes.put_all(new.causes())
        else:
            self._note_actors(offsets, new.actors)
        if len(offsets) == 1:
            self._send(offsets[0], names)
            return
        self.outbox.update(zip(offsets, zip(names, strict=True), strict=True))
        self.outbox_offsets += offsets
        self._latest_changes_in.update(zip(offsets, repeat(1), strict=False))

    def _note_actors(self, offsets: Sequence[int], actors: Sequence[str]) -> None:
        """Store the actors of single-node joins at these offsets: one row per run of equal actors."""
        last = self.join_actor_of(offsets[0])
        for offset, actor in zip(offsets, actors, strict=True):
            if actor != last:
                self.join_actors.put(str(offset), JoinActor(actor))
                self._actor_offsets.append(offset)
                last = actor

    def _mark(self) -> ForwardingMarks:
        return self.marks.rows.get(_MARKS) or ForwardingMarks()

    def _change_nodes(self, change: ZonesChange, at: RecordMetadata) -> None:
        self._overtake(change)
        self.nodes.put_all(change.nodes)
        if change.tombstones:
            self.tombstones.put_all(change.tombstones)
        self._send(at.offset, [*change.nodes, *change.tombstones])

    def _send(self, offset: int, names: Sequence[str]) -> None:
        self.outbox[offset] = names
        self.outbox_offsets.append(offset)
        self._latest_changes_in[offset] = len(names)

    def _overtake(self, change: ZonesChange) -> None:
        """Remove the former states of these nodes from the counts and the outbox."""
        for old in self.nodes.get_many([*change.nodes, *change.tombstones]):
            if old is not None:
                self._count(old.zone, -1)
                self._stale(old.changed)
        for name, node in change.nodes.items():
            tombstone = self.tombstones.rows.get(name)
            if tombstone is not None:
                self.tombstones.remove(name)
                self._stale(tombstone.changed)
            self._count(node.zone, 1)
        self.nodes.remove_all(change.tombstones)

    def _stale(self, offset: int) -> None:
        left = self._latest_changes_in.get(offset)
        if left is None:
            return
        self._latest_changes_in[offset] = left - 1
        if left == 1:
            self._drop(offset)
            del self.outbox_offsets[bisect_left(self.outbox_offsets, offset)]

    def _prune(self, forwarded: int) -> None:
        count = bisect_left(self.outbox_offsets, forwarded)
        for offset in self.outbox_offsets[:count]:
            for name in self.outbox[offset] if self.tombstones.rows else ():
                tombstone = self.tombstones.rows.get(name)
                if tombstone is not None and tombstone.changed == offset:
                    self.tombstones.remove(name)
            self._drop(offset)
        del self.outbox_offsets[:count]
        over = max(bisect_right(self._actor_offsets, forwarded) - 1, 0)
        for offset in self._actor_offsets[:over]:
            self.join_actors.remove(str(offset))
        del self._actor_offsets[:over]

    def _drop(self, offset: int) -> None:
        del self.outbox[offset]
        del self._latest_changes_in[offset]
        if self.causes.rows:
            self.causes.remove(str(offset))

    def _count(self, zone: str, by: int) -> None:
        """Update the node count of a zone. A zone without nodes takes no memory, because a join may name any zone."""
        count = self.node_counts.get(zone, 0) + by
        if count:
            self.node_counts[zone] = count
        else:
            self.node_counts.pop(zone, None)
