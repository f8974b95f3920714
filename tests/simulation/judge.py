"""The verdict on a run: the log is read twice, folded afresh, and every checker looks at everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING

from deploy.roles import folds_of
from eventstore.log import CLIQUES, FLEET, FOLDED_TOPICS, ZONES, Partition, Record
from eventstore.partition import FoldedPartition
from projections import device_table, tables
from projections.prefixes import networks
from projections.rules import Delta, Rule
from tests.contract.engine import read_to_end
from tests.simulation import checkers, model
from tests.simulation.fresh import After, Step, refold
from tests.support.fleet import Net, expected_table

if TYPE_CHECKING:
    from tests.simulation.world import World

FAULTS_SHOWN = 20


class Reference:
    """The log as it stands, folded afresh."""

    def __init__(self, world: World, records: Mapping[Partition, Sequence[Record]]) -> None:
        self.records = records
        self.folded: dict[Partition, FoldedPartition] = {}
        self.steps: dict[Partition, list[Step]] = {}
        self.tables: dict[str, dict[int, bytes]] = {zone: {} for zone in world.plan.zones}
        self.cliques: list[model.Cliques] = []
        self.freezes: list[checkers.Freeze] = []
        self._world = world
        self._frozen: dict[str, int] = {}
        log_id = next(life.replica.log_id for p in world.processes if (life := p.life))
        by_topic = {fold.topic: fold for fold in folds_of(world.log.partition_count)}
        for partition, found in records.items():
            after = self._observers(partition)
            fold = by_topic[partition.topic]
            self.folded[partition], self.steps[partition] = refold(partition, found, fold, log_id, after)

    def _observers(self, partition: Partition) -> list[After]:
        if partition.topic == CLIQUES:
            self.cliques.append(model.Cliques())
            return [self.cliques[-1].after]
        return [self._note_tables, self._note_freezes] if partition.topic == FLEET else []

    def end_freezes(self) -> None:
        """What is frozen at the end stays so."""
        self.freezes += [checkers.Freeze(zone, offset, inf, inf) for zone, offset in self._frozen.items()]

    def _note_freezes(self, folded: FoldedPartition, step: Step) -> None:
        offset = step.record.offset
        for zone in self._world.plan.zones:
            if folded.state.is_frozen(zone):
                self._frozen.setdefault(zone, offset)
            elif (since := self._frozen.pop(zone, None)) is not None:
                self.freezes.append(
                    checkers.Freeze(zone, since, offset, self._world.appended_s(step.partition, offset))
                )

    def _note_tables(self, folded: FoldedPartition, step: Step) -> None:
        for zone, versions in self.tables.items():
            table = tables.table(folded.state, zone)
            versions.setdefault(table.version, table.digest)


async def read_everything(world: World) -> dict[Partition, list[Record]]:
    """Every record of every topic that is folded."""
    positions = {partition: 0 for topic in FOLDED_TOPICS for partition in world.log.partitions(topic)}
    return await read_to_end(world.log, positions)


async def judge(world: World) -> list[str]:
    """What was wrong with a run that has ended; its processes are still up."""
    records = await read_everything(world)
    if await read_everything(world) != records:
        return ["two readers of the log at rest do not see the same"]
    reference = Reference(world, records)
    reference.end_freezes()
    return list(islice(chain(world.faults(), _safety(world, reference), _rest(world, reference)), FAULTS_SHOWN))


def _safety(world: World, reference: Reference) -> Iterator[str]:
    """What held at every moment."""
    history, steps = world.history, reference.steps
    yield from checkers.check_quarantine(reference.folded)
    yield from checkers.check_effects(steps)
    yield from checkers.check_answers(history, steps)
    yield from checkers.check_claims(history, steps)
    yield from checkers.check_marks(steps)
    zones = {dpu: zone.name for zone in world.simulator.zones.values() for dpu in zone.dpus}
    zones |= {host.name: host.zone for host in world.agents}
    yield from checkers.check_devices(history.seen, zones, reference.tables)
    yield from checkers.check_freezes(history.seen, zones, reference.freezes)
    yield from checkers.check_bmcs({name: device.begun for name, device in world.bmcs.devices.items()}, steps)
    yield from checkers.check_attempts(steps)
    for cliques in reference.cliques:
        yield from cliques.faults


def _rest(world: World, reference: Reference) -> Iterator[str]:
    """What holds once everything has come to rest."""
    folded = reference.folded
    fleet = folded[checkers.FLEET_0].state
    yield from checkers.check_rest(folded)
    zones = [found.state for partition, found in folded.items() if partition.topic == ZONES]
    yield from checkers.check_union(zones, fleet)
    yield from checkers.check_idle(zones)
    stated = model.newest([step for p, found in reference.steps.items() if p.topic == ZONES for step in found])
    yield from model.check_nodes(stated, fleet)
    yield from _replicas(world, folded)
    for zone in world.plan.zones:
        snapshot = tables.snapshot(fleet, zone)
        if _prefixes(snapshot) != expected_table(fleet, zone):
            yield f"the table of {zone} is not what its policies say of the members"
        yield from _devices(world, zone, snapshot, folded)
    for host in world.agents:
        snapshot = tables.snapshot(fleet, host.zone)
        registered = host.name in folded[world.zone_partition(host.zone)].state.dpus.rows
        held = host.agent.table.version, host.device.holds.digest
        if registered and snapshot.to_version and held != (snapshot.to_version, snapshot.digest):
            yield f"{host.name} says version {held[0]}, has {host.device.holds.version}, not {snapshot.to_version}"


def _replicas(world: World, folded: Mapping[Partition, FoldedPartition]) -> Iterator[str]:
    """Every replica has folded all of it, to the same state."""
    for process in world.processes:
        for status in process.life.replica.partitions_status() if process.life else ():
            fresh = folded.get(status.partition)
            if status.halted:
                yield f"{process.name} has halted {status.partition}: {status.halted}"
            elif fresh and (status.position, status.running) != (fresh.position, fresh.running.hex()):
                yield f"{process.name} is at {status.position} of {status.partition}, the log at {fresh.position}"
        if process.life and process.life.beacons.divergences:
            yield f"{process.name} has seen {process.life.beacons.divergences} divergences"


def _devices(world: World, zone: str, snapshot: Delta, folded: Mapping[Partition, FoldedPartition]) -> Iterator[str]:
    """Every registered DPU of a zone holds exactly the rules of its table."""
    simulated = world.simulator.zones[zone]
    rows = folded[world.zone_partition(zone)].state.dpus.rows
    records, held = world.fleet.records, world.fleet.tables
    places = world.fleet.zones[world.plan.zones.index(zone)]
    for number, dpu in enumerate(simulated.dpus):
        if dpu not in rows or not snapshot.to_version:
            continue
        table, claimed = (held[int(found[places.start + number])] for found in (records.actual, records.claimed))
        if claimed.version != snapshot.to_version or table.digest != snapshot.digest:
            yield f"{dpu} says version {claimed.version}, has {table.version}, and its zone {snapshot.to_version}"
        elif {rule: set(networks(*device_table.pack(found))) for rule, found in table.rules.items()} != _prefixes(
            snapshot
        ):
            yield f"{dpu} has other rules than its digest says"


def _prefixes(snapshot: Delta) -> dict[Rule, set[Net]]:
    return {step.rule: set(networks(step.add4, step.add6)) for step in snapshot.steps}
