"""The outbox of fleet for each zones partition: superseded nodes, and limits of zones.

A record of fleet adds at most one entry per partition. The entry carries the offset of that record. The zones partition
stores a mark: the offset of fleet up to which it has accepted entries. So it accepts each entry once and in order,
however often a forwarder appends it. Zones do not acknowledge entries. Fleet retains the last entries of each
partition, within MAX_OUTBOX_ENTRIES.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.folding.fold import RecordMetadata
from eventstore.log import partition_of
from projections.fleet.membership.joins import Superseded
from projections.fleet.policies.fleet_zones import ZoneLimits
from projections.fleet.state import MAX_OUTBOX_ENTRIES, MAX_OUTBOX_NODES, FleetState, OutboxEntry


def enqueue_superseded(state: FleetState, superseded: Sequence[Superseded], at: RecordMetadata) -> None:
    """Enqueue for each zone its nodes that have a newer incarnation in another zone."""
    by_partition: dict[int, list[Superseded]] = {}
    for node in superseded:
        by_partition.setdefault(_partition(state, node.zone), []).append(node)
    for partition, nodes in sorted(by_partition.items()):
        zones, names, created_ms, uids = (list(column) for column in zip(*nodes, strict=True))
        mark = state.marks.get(partition, 0)
        _enqueue(state, OutboxEntry(partition, at.offset, at.time_ms, zones, names, created_ms, uids, mark))


def enqueue_limits(state: FleetState, zone: str, limits: ZoneLimits, at: RecordMetadata) -> None:
    """Enqueue the limits of a zone."""
    _enqueue(state, OutboxEntry(_partition(state, zone), at.offset, at.time_ms, [zone], [], [], [], limits=limits))


def _partition(state: FleetState, zone: str) -> int:
    return partition_of(zone.encode(), state.partition_count)


def _enqueue(state: FleetState, entry: OutboxEntry) -> None:
    queue = state.outbox_queues.setdefault(entry.partition, [])
    queue.append(entry)
    state.outbox_entries.put(_key(entry), entry)
    state.outbox_nodes[entry.partition] += len(entry.names)
    while state.outbox_nodes[entry.partition] > MAX_OUTBOX_NODES:
        _drop(state, entry.partition, next(place for place, found in enumerate(queue) if found.names))
    while len(queue) > MAX_OUTBOX_ENTRIES:
        _drop(state, entry.partition, 0)


def _drop(state: FleetState, partition: int, place: int) -> None:
    dropped = state.outbox_queues[partition].pop(place)
    state.outbox_entries.remove(_key(dropped))
    state.outbox_nodes[partition] -= len(dropped.names)


def _key(entry: OutboxEntry) -> str:
    return f"{entry.partition:06d}/{entry.offset:020d}"
