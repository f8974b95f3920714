"""Verification: the whole log is folded again and compared with every replica and every DPU.

A replica publishes the digest of its state at the position of its last save; the new fold computes its digest at the
same positions. A DPU's table is compared with the table of its zone by epoch, version and digest. The folds of zones
and of fleet are compared with each other (`agreement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from deploy.operations.audit.agreement import Agreement, FoldObserver, compare
from eventstore.folding.fold import Fold
from eventstore.log import FLEET, FLEET_0, ZONES, EventLog, Partition
from eventstore.progress import ReportProgress
from eventstore.recovery.replay import ReplayResult, replay
from eventstore.replicas.lineage import Lineage
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import table
from projections.rules.rule import Held, Holdings
from projections.zones.state import ZonesState


class ReplicaDigest(NamedTuple):
    """A digest that a replica published: the digest of a partition's state after the fold of all records below
    `position`."""

    replica: str
    partition: Partition
    position: int
    digest: str


class RefoldedLog(NamedTuple):
    """A log that was folded again from its beginning, and the differences as sentences: from the replicas' digests, and
    between zones and fleet.
    """

    replayed: ReplayResult
    replica_digests: int
    differences: tuple[str, ...]
    agreement: Agreement

    @property
    def fleet(self) -> FleetState:
        state: FleetState = self.replayed.partitions[FLEET_0].state
        return state

    @property
    def zones(self) -> list[str]:
        """Every zone that has, or had, a node or DPU."""
        states: list[ZonesState] = [
            folded.state for partition, folded in self.replayed.partitions.items() if partition.topic == ZONES
        ]
        return sorted(zone for state in states for zone in state.zones())

    @property
    def dpus(self) -> dict[str, set[str]]:
        """The registered DPUs of each zone."""
        found: dict[str, set[str]] = {}
        for partition, folded in self.replayed.partitions.items():
            if partition.topic == ZONES:
                for name, dpu in folded.state.dpus.rows.items():
                    found.setdefault(dpu.zone, set()).add(name)
        return found


class DeviceComparison(NamedTuple):
    """The comparison of DPUs with the log. `absent` DPUs are registered, but no relay has a report about them."""

    equal: int
    differences: tuple[str, ...]
    absent: tuple[str, ...]


async def refold_log(
    log: EventLog,
    folds: Sequence[Fold[Any]],
    replica_digests: Iterable[ReplicaDigest],
    report: ReportProgress | None = None,
) -> RefoldedLog:
    """Fold the log up to its present ends, and compare every published digest with the fold."""
    replica_digests = [
        claim for claim in replica_digests if claim.position
    ]  # a replica without a save has published no digest
    wanted: dict[Partition, set[int]] = {}
    for claim in replica_digests:
        wanted.setdefault(claim.partition, set()).add(claim.position)
    observer = FoldObserver()
    replayed = await replay(log, observer.folds(folds), until=await _ends(log, folds), digests_at=wanted, report=report)
    differences = [
        f"{partition} cannot be folded at {folded.position}: {folded.halted}"
        for partition, folded in replayed.partitions.items()
        if folded.halted
    ]
    checked = 0
    for claim in replica_digests:
        found = replayed.digests.get(claim.partition, {}).get(claim.position)
        if found is not None:
            checked += 1
            if found != claim.digest:
                differences.append(
                    f"{claim.partition} at {claim.position}: {claim.replica} has state {claim.digest}, the log {found}"
                )
    agreement = compare(replayed.partitions, observer)
    return RefoldedLog(replayed, checked, (*differences, *map(str, agreement.groups)), agreement)


async def _ends(log: EventLog, folds: Sequence[Fold[Any]]) -> dict[Partition, int]:
    """The present ends. Fleet's end is read first, so that each zones partition has all changes that fleet received."""
    topics = sorted((fold.topic for fold in folds), key=lambda topic: topic != FLEET)
    return {partition: await log.end(partition) for topic in topics for partition in log.partitions(topic)}


def compare_devices(fresh: RefoldedLog, lineage: Lineage, devices: Holdings) -> DeviceComparison:
    """Compare every DPU's table with the tables of the new fold."""
    equal, differences, absent = 0, [], []
    for zone, names in sorted(fresh.dpus.items()):
        tables = {stage: table(fresh.fleet, zone, stage) for stage in fresh.fleet.stages_of(zone)}
        held = devices.get(zone, {})
        why = ": the zone is frozen" if fresh.fleet.is_frozen(zone) else ""
        for name in sorted(names):
            now = tables[fresh.fleet.stage_of(zone, name)]
            wanted = Held(lineage.generation, now.version, now.digest)
            has = held.get(name)
            if has is None:
                absent.append(name)
            elif has == wanted or (now.version == 0 and has.version == 0):
                equal += 1
            else:
                newer = (
                    ""
                    if lineage.knows(has.epoch, has.version)
                    else ", a version after the backup that this log was restored from"
                )
                holds = f"dpu {name} of zone {zone} holds {_shown(has)}{newer}"
                differences.append(f"{holds}, the log expects {_shown(wanted)}{why}")
    return DeviceComparison(equal, tuple(differences), tuple(absent))


def _shown(held: Held) -> str:
    return f"epoch {held.epoch} version {held.version} digest {held.digest.hex()}"
