"""Compares the nodes of a source with the folds: the records to append, in batches of one zone each. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from commands.inventory.batches import PlannedNode, batches
from commands.kubernetes.node_facts import NodeFacts
from commands.requests.validation import EnvelopeFactory
from projections.fold_states import FoldStates
from projections.zones.rows import Node, SourceList
from schemas.events import MAX_ITEMS, NodesJoined, NodesLeft, SnapshotCompleted


class FoldedNode(NamedTuple):
    """A node in the folds, with the zone of its newest incarnation."""

    zone: str
    created_ms: int
    uid: str


def folded_node(states: FoldStates, name: str) -> FoldedNode | None:
    """The node of this name in the folds. It can be in two zones until fleet has removed the older incarnation."""
    found = [row for zones in states.all_zones() if (row := zones.nodes.rows.get(name)) is not None]
    newest = max(found, key=lambda row: (row.created_ms, row.changed_ms), default=None)
    return None if newest is None else FoldedNode(newest.zone, newest.created_ms, newest.uid)


def is_in_folds(states: FoldStates, facts: NodeFacts) -> bool:
    """Whether the folds have the node exactly as its Node object describes it, and in no other zone."""
    rows = [(zones, row) for zones in states.all_zones() if (row := zones.nodes.rows.get(facts.node.name)) is not None]
    return len(rows) == 1 and _equals(rows[0][1], facts)


def _equals(row: Node, facts: NodeFacts) -> bool:
    node = facts.node
    return (row.zone, row.created_ms, row.uid, row.address4, row.address6, row.labels) == (
        facts.zone,
        facts.created_ms,
        facts.uid,
        node.address4,
        node.address6.to_bytes(16, "big") if node.address6 else b"",
        dict(node.labels),
    )


def joins(make: EnvelopeFactory, lacking: Iterable[NodeFacts]) -> Iterator[NodesJoined]:
    """Records of the joins of these nodes, zone by zone. An address occurs at most once in a record: otherwise one
    address of two Nodes would refuse the joins of all others."""
    by_zone: defaultdict[str, dict[str, NodeFacts]] = defaultdict(dict)
    for facts in lacking:
        by_zone[facts.zone][facts.node.name] = facts
    for zone, found in sorted(by_zone.items()):
        groups = _without_shared_addresses(facts.node for facts in found.values())
        for batch in chain.from_iterable(batches(zone, group) for group in groups):
            stated = [found[name] for name in batch.names]
            yield NodesJoined(
                envelope=make(zone),
                zone=zone,
                names=list(batch.names),
                created_ms=[facts.created_ms for facts in stated],
                uids=[facts.uid for facts in stated],
                addresses4=batch.addresses4,
                addresses6=batch.addresses6,
                label_sets=list(batch.label_sets),
                label_index=list(batch.label_index),
            )


def ahead_of(stated: Iterable[NodeFacts], latest_ms: int) -> dict[str, NodeFacts]:
    """The nodes that were created after this time, by name."""
    return {facts.node.name: facts for facts in stated if facts.created_ms > latest_ms}


def _without_shared_addresses(nodes: Iterable[PlannedNode]) -> list[list[PlannedNode]]:
    """The nodes in groups. The second node with an address is in a later group than the first one, and so on."""
    groups: list[list[PlannedNode]] = []
    next_group: dict[int, int] = {}
    for node in nodes:
        addresses = [address for address in (node.address4, node.address6) if address]
        number = max((next_group.get(address, 0) for address in addresses), default=0)
        next_group |= dict.fromkeys(addresses, number + 1)
        if number == len(groups):
            groups.append([])
        groups[number].append(node)
    return groups


def leaves(make: EnvelopeFactory, gone: Mapping[str, FoldedNode], *, list_hash: bytes = b"") -> Iterator[NodesLeft]:
    """Records of the leaves of these nodes, zone by zone. With `list_hash`, the leaves are inferred from the list with
    this hash."""
    by_zone: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(gone):
        by_zone[gone[name].zone].append(name)
    for zone, names in sorted(by_zone.items()):
        for start in range(0, len(names), MAX_ITEMS):
            part = names[start : start + MAX_ITEMS]
            yield NodesLeft(
                envelope=make(zone),
                zone=zone,
                names=part,
                created_ms=[gone[name].created_ms for name in part],
                uids=[gone[name].uid for name in part],
                inferred=bool(list_hash),
                list_hash=list_hash,
            )


class ListFacts(NamedTuple):
    """A complete list of a source: its resource version, the number of its nodes, and whether the API server was
    restored from an older backup. After a restore, the list may lack nodes."""

    source: str
    version: int
    total: int
    restored: bool


def last_list(states: FoldStates, source: str) -> SourceList:
    """The last complete list of a source in the folds; version 0 if there is none."""
    rows = [row for zones in states.all_zones() if (row := zones.lists.rows.get(source)) is not None]
    return max(rows, key=lambda row: (row.issued_ms, row.restored, row.version), default=SourceList(0, False, 0))


def snapshot(make: EnvelopeFactory, zone: str, found: ListFacts, listed: Iterable[NodeFacts]) -> SnapshotCompleted:
    """The record of a complete list: count and hash of the source's nodes in a zone. Equal lists have equal hashes."""
    lines = sorted(f"{facts.node.name} {facts.created_ms} {facts.uid}\n" for facts in listed)
    digest = hashlib.sha256("".join(lines).encode()).digest()
    return SnapshotCompleted(
        envelope=make(zone),
        zone=zone,
        source=found.source,
        count=len(lines),
        list_hash=digest,
        version=found.version,
        total=found.total,
        restored=found.restored,
    )
