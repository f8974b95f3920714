"""What fleet tells a zones partition: nodes with a newer incarnation elsewhere, and limits of zones.

Each fleet record causes at most one such record per partition, named by its own offset, so a zone that keeps a mark for
fleet takes each once, in order, whoever appends it and however often. Fleet never hears how far a zone has come; it
keeps the last of them, which are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from eventstore.folding.fold import At
from eventstore.log import partition_of
from projections.fleet.joins import Superseded
from projections.fleet.state import MAX_HANDED, MAX_HANDED_NODES, FleetState, Handed
from projections.fleet.zone_rows import ZoneLimits
from schemas.events import Envelope, NodesSuperseded, ZoneLimitsSet

ACTOR = "fleet"


def caused(state: FleetState, zone_partition: int, mark: int) -> NodesSuperseded | ZoneLimitsSet | None:
    """The next record that fleet owes a zones partition whose mark for fleet is `mark`; None if there is none."""
    queue = state.queues.get(zone_partition, [])
    place = bisect_left(queue, mark, key=attrgetter("offset"))
    if place == len(queue):
        return None
    handed = queue[place]
    envelope = Envelope("", handed.zones[0], ACTOR, handed.time_ms)
    if handed.limits is not None:
        installs, nodes, networks, keys, tries = handed.limits
        end = handed.offset + 1
        return ZoneLimitsSet(
            envelope, mark, end, handed.zones[0], installs, nodes, list(networks), list(keys), [*tries]
        )
    zones, names, created_ms, uids = handed.zones, handed.names, handed.created_ms, handed.uids
    return NodesSuperseded(envelope, mark, handed.offset + 1, zones, names, created_ms, uids, handed.heard)


def hand_superseded(state: FleetState, superseded: Sequence[Superseded], at: At) -> None:
    """Tell each zone which of its nodes live elsewhere now."""
    by_partition: dict[int, list[Superseded]] = {}
    for node in superseded:
        by_partition.setdefault(_partition(state, node.zone), []).append(node)
    for partition, nodes in sorted(by_partition.items()):
        zones, names, created_ms, uids = (list(column) for column in zip(*nodes, strict=True))
        heard = state.marks.get(partition, 0)
        _hand(state, Handed(partition, at.offset, at.time_ms, zones, names, created_ms, uids, heard))


def hand_limits(state: FleetState, zone: str, limits: ZoneLimits, at: At) -> None:
    """Tell a zone its limits."""
    _hand(state, Handed(_partition(state, zone), at.offset, at.time_ms, [zone], [], [], [], limits=limits))


def _partition(state: FleetState, zone: str) -> int:
    return partition_of(zone.encode(), state.partition_count)


def _hand(state: FleetState, handed: Handed) -> None:
    queue = state.queues.setdefault(handed.partition, [])
    queue.append(handed)
    state.handed.put(_key(handed), handed)
    state.handed_nodes[handed.partition] += len(handed.names)
    while state.handed_nodes[handed.partition] > MAX_HANDED_NODES:
        _drop(state, handed.partition, next(place for place, found in enumerate(queue) if found.names))
    while len(queue) > MAX_HANDED:
        _drop(state, handed.partition, 0)


def _drop(state: FleetState, partition: int, place: int) -> None:
    dropped = state.queues[partition].pop(place)
    state.handed.remove(_key(dropped))
    state.handed_nodes[partition] -= len(dropped.names)


def _key(handed: Handed) -> str:
    return f"{handed.partition:06d}/{handed.offset:020d}"
