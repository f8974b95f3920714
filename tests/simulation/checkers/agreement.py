"""Zones and fleet agree on every node: on its zone, its attributes, and its absence after a leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from deploy.composition.roles import folds_of
from deploy.operations.audit.agreement import FoldObserver, compare
from eventstore.folding.fold import folds_by_version
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET, FLEET_0, ZONES, Partition
from projections.zones.rows import Node, NodeTombstone
from schemas.events import SUPERSEDED
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Step

Found = Iterator[str]


class Leave(NamedTuple):
    """The last accepted leave of a node that is absent from the partition."""

    partition: Partition
    tombstone: NodeTombstone


def check_ended(run: Evidence) -> Found:
    """I25, at rest: no zone has a node that left another partition in a newer incarnation. Computed from rows alone.

    A record of fleet with an older timestamp than the leave that it reports shows a wrong clock: the check is then
    skipped. A leave with an older timestamp than the last statement before it in its partition shows that the clock was
    corrected between them. The order of two statements with equal creation time is then unknown, and only an older
    incarnation counts as a fault.
    """
    leaves: dict[str, list[Leave]] = {}
    for partition, steps in run.steps.items():
        if partition.topic == ZONES:
            for name, tombstone in _leaves(steps).items():
                leaves.setdefault(name, []).append(Leave(partition, tombstone))
    for partition, folded in run.folded.items():
        rows = folded.state.nodes.rows if partition.topic == ZONES else {}
        for name in sorted(leaves.keys() & rows):
            for leave in leaves[name]:
                if leave.partition != partition and _ends(run, leave, partition, rows[name]):
                    left_as = f"{leave.tombstone.zone} as incarnation {leave.tombstone.created_ms}"
                    yield f"node {name} is in {rows[name].zone}, but left {left_as}"


def check_verified(run: Evidence) -> Found:
    """I25, at rest: `dpuplane verify` finds no difference between zones and fleet, and no change in flight."""
    observer = FoldObserver()
    partitions: dict[Partition, FoldedPartition] = {}
    observed = observer.folds([fold for fold in folds_of(run.partition_count) if fold.topic in {ZONES, FLEET}])
    for topic, versions in folds_by_version(observed).items():
        for partition in sorted(partition for partition in run.records if partition.topic == topic):
            folded = partitions[partition] = FoldedPartition(partition, versions, run.log_id)
            for record in run.records[partition]:
                folded.fold(record)
    found = compare(partitions, observer)
    yield from map(str, found.groups)
    if found.pending:
        yield f"in transit between zones and fleet: {found.pending} nodes"


def _leaves(steps: list[Step]) -> dict[str, NodeTombstone]:
    """The leaves without a later statement in their partition."""
    leaves: dict[str, NodeTombstone] = {}
    for step in steps:
        for name, node in step.rows.get("nodes", ()):
            if node is not None:
                leaves.pop(name, None)
        for name, tombstone in step.rows.get("tombstones", ()):
            if tombstone is not None and (tombstone.state == SUPERSEDED or not tombstone.last_present_ms):
                leaves.pop(name, None)
            elif tombstone is not None:
                leaves[name] = tombstone
    return leaves


def _ends(run: Evidence, leave: Leave, partition: Partition, node: Node) -> bool:
    """Whether the leave ends this row of the node: the row is of an older incarnation, or was stated before the node
    moved to the zone that it left.
    """
    tombstone = leave.tombstone
    now_ms = _known_to_fleet_ms(run, leave.partition, tombstone.changed, partition, node.changed)
    if max(tombstone.changed_ms, node.changed_ms) > now_ms:
        return False
    if node.created_ms == tombstone.created_ms:
        return node.changed_ms < tombstone.last_present_ms <= tombstone.changed_ms
    return node.created_ms < tombstone.created_ms and node.changed_ms <= tombstone.changed_ms


def _known_to_fleet_ms(run: Evidence, one: Partition, offset: int, other: Partition, of_other: int) -> int:
    """The timestamp of the record by which fleet had received both changes; 0 if it has not."""
    ends = [
        next((record_offset for end, record_offset in run.taken(partition) if end > changed), -1)
        for partition, changed in ((one, offset), (other, of_other))
    ]
    if min(ends) < 0:
        return 0
    return run.by_offset[FLEET_0, max(ends)].record.timestamp_ms
