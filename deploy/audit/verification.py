"""Whether what lives equals the log: the whole log is folded afresh and compared with every replica and every DPU.

Replicas say the digest of their state at the position at which they last saved it; the fresh fold takes its own digest
at just these positions. A DPU's table is compared with the table of its zone, both by epoch, version and digest. The
folds of zones and of fleet are compared with each other (agreement).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from deploy.audit.agreement import Agreement, Witness, compare
from eventstore.folding.fold import Fold
from eventstore.log import FLEET, FLEET_0, ZONES, EventLog, Partition
from eventstore.progress import ReportProgress
from eventstore.recovery.replay import ReplayResult, replay
from eventstore.replicas.lineage import Lineage
from projections.fleet.state import FleetState
from projections.fleet.tables import table
from projections.rules.rule import Held, Holdings
from projections.zones.state import ZonesState


class Claim(NamedTuple):
    """What a replica says of a partition: the digest of its state when everything below `position` was folded."""

    replica: str
    partition: Partition
    position: int
    digest: str


class Fresh(NamedTuple):
    """A log folded afresh, and what differs, a sentence each: claims of replicas, and zones from fleet."""

    replayed: ReplayResult
    claims: int
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


class Devices(NamedTuple):
    """How DPUs compare with the log. `absent` ones are registered, but no relay knows what they hold."""

    equal: int
    differences: tuple[str, ...]
    absent: tuple[str, ...]


async def fold_afresh(
    log: EventLog, folds: Sequence[Fold[Any]], claims: Iterable[Claim], report: ReportProgress | None = None
) -> Fresh:
    """Fold the log up to its present ends, and hold each claim about it against the fold."""
    claims = [claim for claim in claims if claim.position]  # a replica that has saved nothing yet claims nothing
    wanted: dict[Partition, set[int]] = {}
    for claim in claims:
        wanted.setdefault(claim.partition, set()).add(claim.position)
    witness = Witness()
    replayed = await replay(log, witness.folds(folds), until=await _ends(log, folds), digests_at=wanted, report=report)
    differences = [
        f"{partition} cannot be folded at {folded.position}: {folded.halted}"
        for partition, folded in replayed.partitions.items()
        if folded.halted
    ]
    checked = 0
    for claim in claims:
        found = replayed.digests.get(claim.partition, {}).get(claim.position)
        if found is not None:
            checked += 1
            if found != claim.digest:
                differences.append(
                    f"{claim.partition} at {claim.position}: {claim.replica} has state {claim.digest}, the log {found}"
                )
    agreement = compare(replayed.partitions, witness)
    return Fresh(replayed, checked, (*differences, *map(str, agreement.groups)), agreement)


async def _ends(log: EventLog, folds: Sequence[Fold[Any]]) -> dict[Partition, int]:
    """The present ends, fleet's first: a zones partition then has all that fleet heard of it before."""
    topics = sorted((fold.topic for fold in folds), key=lambda topic: topic != FLEET)
    return {partition: await log.end(partition) for topic in topics for partition in log.partitions(topic)}


def compare_devices(fresh: Fresh, lineage: Lineage, devices: Holdings) -> Devices:
    """Hold what every DPU has against the tables of the fresh fold."""
    equal, differences, absent = 0, [], []
    for zone, names in sorted(fresh.dpus.items()):
        now = table(fresh.fleet, zone)
        wanted = Held(lineage.generation, now.version, now.digest)
        held = devices.get(zone, {})
        why = ": the zone is frozen" if fresh.fleet.is_frozen(zone) else ""
        for name in sorted(names):
            has = held.get(name)
            if has is None:
                absent.append(name)
            elif has == wanted or (now.version == 0 and has.version == 0):
                equal += 1
            else:
                newer = "" if lineage.knows(has.epoch, has.version) else ", which this log was restored without"
                holds = f"dpu {name} of zone {zone} holds {_shown(has)}{newer}"
                differences.append(f"{holds}, the log says {_shown(wanted)}{why}")
    return Devices(equal, tuple(differences), tuple(absent))


def _shown(held: Held) -> str:
    return f"epoch {held.epoch} version {held.version} digest {held.digest.hex()}"
