"""Records about nodes, decided item by item: join, change, leave.

An incarnation is (created_ms, uid). A record about an older incarnation than the stored one changes nothing. If two
incarnations were created at the same time (Kubernetes counts seconds), the later one in the log is newer. The same
holds if the clock was fast when the stored incarnation was appended (`projections/incarnations`). A record about the
stored incarnation replaces its addresses, labels and zone.

An inferred leave is the only effect of missing data, so it needs evidence: the last snapshot of the node's source in
this zone, which must be newer than the node's last change. Lists of a source that was restored from an older backup are
no evidence, until one of them contains every known node.

A node agent may set only the fields of its node that it owns (`field_owners`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat

from msgspec import structs

from eventstore.avro.columns import EventColumns
from eventstore.folding.fold import (
    DONE,
    UNCHANGED,
    Decision,
    ItemOutcome,
    Outcome,
    RecordMetadata,
    refusal,
    refused_item,
    unchanged,
)
from eventstore.reasons import Fault, Reason
from projections.actors import is_node_agent
from projections.columns import expand, fault_of_nodes, incarnations
from projections.field_checks import check_zone, quoted
from projections.incarnations import is_older
from projections.zones.nodes import field_owners as agents
from projections.zones.nodes.new_nodes import of_record, of_run
from projections.zones.rows import MAX_ACTOR, CauseRow, Node, NodeTombstone, SourceList, SourceSnapshot, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import (
    AGENT_JOINED,
    INFERRED,
    LEFT,
    MAX_FORWARD_ITEMS,
    SUPERSEDED,
    NodesChanged,
    NodesJoined,
    NodesLeft,
    NodesSuperseded,
    SnapshotCompleted,
)

_MAX_HASH = 64


def join(state: ZonesState, event: NodesJoined, at: RecordMetadata) -> Decision:
    stated = of_record(event, at)
    fault = fault_of_nodes(event, at.time_ms)
    if fault is not None:
        return refusal(fault)
    zone, by_agent = state.existing_zone(event.zone), is_node_agent(event.envelope.actor)
    if by_agent and (fault := agents.fault_of_zone(event.zone, zone)):
        return refusal(fault)
    if not by_agent and state.count_new(event.names) == len(event.names):
        return Decision(ZonesChange(new=stated), DONE)
    put: dict[str, Node] = {}
    items: list[ItemOutcome] = []
    for name, node, old in zip(event.names, stated.rows(), state.nodes.get_many(event.names), strict=True):
        row = agents.merged(name, node, old, zone or Zone()) if by_agent else node
        if isinstance(row, str):
            items.append(refused_item(name, row))
        elif old is None or not _same(old, row):
            if old is not None and is_older(row.created_ms, old.created_ms, at.time_ms):
                newer = f"node: {name!r} has a newer incarnation in this zone, of {old.created_ms}"
                items.append(refused_item(name, Fault(newer, Reason.INCARNATION_OUTDATED, node=name)))
            else:
                put[name] = row
    zones = {event.zone: Zone()} if put and event.zone not in state.zone_rows.rows else {}
    return _decision(event.names, items, ZonesChange(nodes=put, zones=zones, cause=_cause(event)))


def join_run(
    state: ZonesState, run: EventColumns, offsets: Sequence[int], append_ms: Sequence[int], time_ms: int
) -> tuple[ZonesChange, int] | None:
    """The change of the leading records of a run, each of which joins one new node; None if one of them needs a
    decision of its own.

    The nodes are checked as if one record had all of them, which is stricter than the checks of each record. If a check
    fails, the caller folds the records one by one.
    """
    count = state.count_new(run.columns["names"])
    new = of_run(run, count, offsets, append_ms) if count else None
    if new is None or any(check_zone("zone", zone) for zone in sorted(set(new.zones))):
        return None
    return (ZonesChange(new=new), count) if fault_of_nodes(new.event, time_ms) is None else None


def change(state: ZonesState, event: NodesChanged, at: RecordMetadata) -> Decision:
    fault = fault_of_nodes(event, at.time_ms)
    if fault is not None:
        return refusal(fault)
    put: dict[str, Node] = {}
    items: list[ItemOutcome] = []
    rows = _rows(event, at)
    before = state.nodes.get_many(event.names)
    by_agent, zone = is_node_agent(event.envelope.actor), _zone(state, event.zone)
    for (name, stated), old, meant in zip(rows.items(), before, incarnations(event), strict=False):
        if old is None or old.zone != event.zone:
            items.append(refused_item(name, _not_here(name, event.zone)))
            continue
        if meant not in (None, (old.created_ms, old.uid)):
            items.append(refused_item(name, _other_incarnation(name, old)))
            continue
        row = agents.merged(name, stated, old, zone) if by_agent else stated
        if isinstance(row, str):
            items.append(refused_item(name, row))
            continue
        row = structs.replace(row, zone=old.zone, created_ms=old.created_ms, uid=old.uid)
        if not _same(old, row):
            put[name] = row
    return _decision(rows, items, ZonesChange(nodes=put, cause=_cause(event)))


def leave(state: ZonesState, event: NodesLeft, at: RecordMetadata) -> Decision:
    """Remove the named incarnations. A node that is not present is `unchanged`, with the reason; an inferred leave
    may be refused."""
    fault = fault_of_nodes(event, at.time_ms) or _fault_of_hash(event) or _fault_of_zone(state, event.zone)
    if fault is not None:
        return refusal(fault)
    tombstones: dict[str, NodeTombstone] = {}
    items: list[ItemOutcome] = []
    before = state.nodes.get_many(event.names)
    by_agent, zone = is_node_agent(event.envelope.actor), _zone(state, event.zone)
    for name, old, meant in zip(event.names, before, incarnations(event), strict=False):
        if old is None or old.zone != event.zone:
            items.append(ItemOutcome(name, "unchanged", str(_not_here(name, event.zone))))
        elif not _is_about(old, meant):
            items.append(ItemOutcome(name, "unchanged", str(_other_incarnation(name, old))))
        elif event.inferred and (doubt := _doubt(state, name, old, event)) is not None:
            items.append(refused_item(name, doubt))
        elif by_agent and (kept := agents.fault_of_leave(name, old, zone)):
            items.append(refused_item(name, kept))
        else:
            tombstones[name] = _tombstone(old, INFERRED if event.inferred else LEFT, at)
    return _decision(event.names, items, ZonesChange(tombstones=tombstones, cause=_cause(event)))


def complete_snapshot(state: ZonesState, event: SnapshotCompleted, at: RecordMetadata) -> Decision:
    fault = check_zone("zone", event.zone) or (check_zone("source", event.source) if event.source else None)
    if fault is None and event.total < 1:
        fault = f"total: {event.total} must be at least 1: an empty list of a source is never accepted"
    if fault is None and not 0 <= event.count <= event.total:
        fault = f"count: {event.count} must be from 0 to {event.total}, the nodes of the source in all zones"
    if fault is None and event.version < 0:
        fault = f"version: {event.version} must be at least 0"
    if fault is None and not 1 <= len(event.list_hash) <= _MAX_HASH:
        fault = f"list_hash: {len(event.list_hash)} bytes must be from 1 to {_MAX_HASH}"
    if fault is not None:
        return refusal(fault)
    key = f"{event.zone}/{event.source}"
    last = state.snapshots.rows.get(key)
    if last is not None and event.envelope.issued_at_ms < last.issued_ms:
        return unchanged(f"list_hash: a snapshot of {last.issued_ms} is newer")
    issued_ms = min(event.envelope.issued_at_ms, at.time_ms)
    row = SourceSnapshot(event.count, event.list_hash, issued_ms, at.offset)
    known = state.lists.rows.get(event.source)
    is_newer = known is None or issued_ms >= known.issued_ms
    lists = {event.source: SourceList(event.version, event.restored, issued_ms)} if is_newer else {}
    return Decision(ZonesChange(snapshots={key: row}, lists=lists), DONE)


def supersede(state: ZonesState, event: NodesSuperseded, at: RecordMetadata) -> Decision:
    """Remove incarnations for which fleet found a newer one in another zone.

    A node that has changed since fleet's decision stays, and fleet decides again after the forward of that change.
    Otherwise two zones could each drop an incarnation that moved back and forth, and the node would be in neither.
    """
    if not len(event.zones) == len(event.names) == len(event.created_ms) == len(event.uids):
        return refusal("names: zones, names, created_ms and uids must have one entry per node")
    if len(event.names) > MAX_FORWARD_ITEMS:
        return refusal(f"names: {len(event.names)} items must be at most {MAX_FORWARD_ITEMS}, the limit of one forward")
    tombstones: dict[str, NodeTombstone] = {}
    before = state.nodes.get_many(event.names)
    columns = zip(event.zones, event.names, event.created_ms, event.uids, before, strict=True)
    for zone, name, created_ms, uid, old in columns:
        if old is None or old.zone != zone or old.changed >= event.seen_offset:
            continue
        if _is_about(old, (created_ms, uid)):
            tombstones[name] = _tombstone(old, SUPERSEDED, at)
    return Decision(ZonesChange(tombstones=tombstones), DONE)


def _rows(event: NodesChanged, at: RecordMetadata) -> dict[str, Node]:
    columns = expand(event)
    rows = map(Node, repeat(event.zone, len(event.names)), *columns, repeat(at.offset), repeat(at.append_ms))
    return dict(zip(event.names, rows, strict=True))


def _zone(state: ZonesState, name: str) -> Zone:
    return state.zone_rows.rows.get(name) or Zone()


def _tombstone(old: Node, state: int, at: RecordMetadata) -> NodeTombstone:
    last_present_ms = 0 if old.agent & AGENT_JOINED else old.changed_ms
    return NodeTombstone(old.zone, old.created_ms, old.uid, state, at.offset, at.append_ms, last_present_ms)


def _same(old: Node, row: Node) -> bool:
    """Whether both rows are equal, except for the record that changed the node last."""
    return (old.zone, old.created_ms, old.uid, old.address4, old.address6, old.labels, old.agent) == (
        row.zone,
        row.created_ms,
        row.uid,
        row.address4,
        row.address6,
        row.labels,
        row.agent,
    )


def _is_about(old: Node, meant: tuple[int, str] | None) -> bool:
    """Whether a leave of incarnation `meant` applies to the stored node. It does if `meant` is the stored incarnation,
    or was created later, or is None (the leave names no incarnation)."""
    return meant is None or meant[0] > old.created_ms or meant == (old.created_ms, old.uid)


def _doubt(state: ZonesState, name: str, old: Node, event: NodesLeft) -> str | None:
    """Why a node's absence from a snapshot does not prove that it left."""
    source = name.partition("/")[0] if "/" in name else ""
    last = state.snapshots.rows.get(f"{event.zone}/{source}")
    if last is None or last.list_hash != event.list_hash:
        reason = (
            f"list_hash: {event.list_hash.hex()[:16]!r} is not the last snapshot of source {source!r} in this partition"
        )
        return Fault(reason, Reason.SNAPSHOT_OUTDATED, node=name, source=source)
    found = state.lists.rows.get(source)
    if found is not None and found.restored:
        reason = f"list_hash: source {source!r} was restored from an older backup, so its list is no evidence of leaves"
        return Fault(reason, Reason.SNAPSHOT_OUTDATED, node=name, source=source)
    if old.changed > last.offset:
        reason = f"node: {name!r} changed at {old.changed}, after the snapshot at {last.offset} that lacks it"
        return Fault(reason, Reason.NODE_CHANGED_LATER, node=name)
    return None


def _fault_of_zone(state: ZonesState, zone: str) -> str | None:
    if state.existing_zone(zone) is not None:
        return None
    reason = f"zone: {quoted(zone)} is not known; a zone exists from its first node or DPU on"
    return Fault(reason, Reason.ZONE_NOT_FOUND, zone=zone)


def _fault_of_hash(event: NodesLeft) -> str | None:
    if not event.inferred or 1 <= len(event.list_hash) <= _MAX_HASH:
        return None
    return f"list_hash: {len(event.list_hash)} bytes must be from 1 to {_MAX_HASH} for an inferred leave"


def _cause(event: NodesJoined | NodesChanged | NodesLeft) -> CauseRow:
    return CauseRow(event.envelope.command_id, event.envelope.actor[:MAX_ACTOR])


def _decision(names: Collection[str], items: Sequence[ItemOutcome], change: ZonesChange) -> Decision:
    """The decision on all items: done if a node changed, refused if every item is refused, otherwise unchanged. `items`
    has the refused nodes, and the unchanged nodes for which there is a reason."""
    if change.nodes or change.tombstones:
        return Decision(change, Outcome("done", items=tuple(items)) if items else DONE)
    if len(items) == len(names) and all(item.code == "refused" for item in items):
        first = items[0]
        refused = Outcome("refused", first.reason, {}, tuple(items), first.reason_code, first.reason_fields)
        return Decision(None, refused)
    if not items:
        return Decision(None, UNCHANGED)
    said = next((item.reason for item in items if item.code == "unchanged"), "")
    return Decision(None, Outcome("unchanged", said, items=tuple(items)))


def _not_here(name: str, zone: str) -> Fault:
    return Fault(f"node: {quoted(name)} is not in zone {zone!r}", Reason.NODE_NOT_FOUND, node=name, zone=zone)


def _other_incarnation(name: str, old: Node) -> Fault:
    reason = f"node: {name!r} has another incarnation in this zone, of {old.created_ms}"
    return Fault(reason, Reason.INCARNATION_DIFFERS, node=name)
