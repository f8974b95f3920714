"""The evidence for all checkers: a history, and the log folded afresh with every step stored.

Fault intervals and uptimes are looked up by time, records by position. Derived data are computed once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

import msgspec

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from eventstore.folding.fold import folds_by_version
from eventstore.folding.partition import FoldedPartition
from eventstore.log import CLIQUES, FLEET, FLEET_0, REPLICAS, ZONES, Partition, Record
from eventstore.replicas.beacons import Beacon
from eventstore.state_store.store import StateReader
from projections.fleet.state import FleetState
from projections.fleet.tables import zone_table as tables
from projections.zones.state import ZonesState
from schemas.events import LogCreated, MembershipChanged, NodesChanged, NodesJoined, NodesLeft
from tests.simulation import model
from tests.simulation.fresh import After, Step, event_of, refold
from tests.simulation.history import FinalTable, History, Invoked, ProcessUptime, TableInstalled
from tests.support.decisions import DecisionRecorder

Records = Mapping[Partition, Sequence[Record]]
Appended = Callable[[Partition, int], float]


REPLICAS_0 = Partition(REPLICAS, 0)


class Freeze(NamedTuple):
    """A zone was frozen from one record of fleet to another, which was appended at `thaw_s`."""

    zone: str
    offset: int
    thaw_offset: float
    thaw_s: float


def is_membership(step: Step) -> bool:
    """Whether a record of a zones partition makes a change that is forwarded to fleet."""
    return isinstance(step.event, NodesJoined | NodesChanged | NodesLeft) and bool(step.rows)


def log_id_of(records: Records) -> str:
    """The id of the log with these records."""
    created = event_of(records[FLEET_0][0])
    assert isinstance(created, LogCreated), "a log begins with a LogCreated"
    return created.log_id


class Evidence:
    """The evidence of one run: its history, its log, and data derived from the log."""

    def __init__(
        self,
        history: History,
        records: Records,
        *,
        again: Records | None = None,
        appended_s: Appended | None = None,
        saved: Mapping[str, StateReader] | None = None,
        end_s: float | None = None,
    ) -> None:
        self.history = history
        self.records = records
        self.again = records if again is None else again
        self.saved = saved or {}
        self.end_s = end_s
        self.partition_count = sum(partition.topic == ZONES for partition in records)
        self.zones = sorted(
            {seen.zone for seen in history.of(TableInstalled)} | {dump.zone for dump in history.of(FinalTable)}
        )
        self.folded: dict[Partition, FoldedPartition] = {}
        self.steps: dict[Partition, list[Step]] = {}
        self.cliques: list[model.Cliques] = []
        self.freezes: list[Freeze] = []
        self.tables: dict[str, dict[int, bytes]] = {zone: {} for zone in self.zones}
        self.canaries: dict[str, set[tuple[int, bytes]]] = {zone: set() for zone in self.zones}
        """The versions and digests of each zone's list with a staged change, while it had both lists."""
        self._appended_s = appended_s
        self._frozen: dict[str, int] = {}
        self._listeners: list[DecisionRecorder] = []
        self.log_id = log_id_of(records)
        self._fold()

    @property
    def fleet(self) -> FleetState:
        """The fleet at the end of the log."""
        state: FleetState = self.folded[FLEET_0].state
        return state

    @property
    def zone_states(self) -> list[ZonesState]:
        """The zones partitions at the end of the log."""
        return [folded.state for partition, folded in self.folded.items() if partition.topic == ZONES]

    def appended_s(self, partition: Partition, offset: int) -> float:
        """The append time of the record at an offset, by the recorder's clock; an unknown time precedes all others."""
        return self._appended_s(partition, offset) if self._appended_s else -inf

    def end_at(self, partition: Partition, at_s: float) -> float:
        """The end of a partition at a given time."""
        if self._appended_s is None:
            return inf
        count = bisect_right(self._times_s[partition], at_s)
        return self.records[partition][count - 1].offset + 1 if count else 0

    @cached_property
    def _times_s(self) -> dict[Partition, list[float]]:
        """The append time of each record, in log order."""
        return {p: [self.appended_s(p, record.offset) for record in found] for p, found in self.records.items()}

    @cached_property
    def by_offset(self) -> dict[tuple[Partition, int], Step]:
        """Every step by the position of its record."""
        return {(p, step.record.offset): step for p, found in self.steps.items() for step in found}

    @cached_property
    def sent(self) -> Counter[str]:
        """The number of sends of each command."""
        return Counter(invoked.command_id for invoked in self.history.of(Invoked))

    def taken(self, partition: Partition) -> list[tuple[int, int]]:
        """The forwards of a zones partition that fleet took, as (position up to which changes are taken, offset in
        fleet).
        """
        return [
            (step.event.to_offset, step.record.offset)
            for step in self.steps[FLEET_0]
            if isinstance(step.event, MembershipChanged)
            and step.event.cause_partition == partition.number
            and "marks" in step.rows
        ]

    def gaps_without(self, role: str) -> Iterator[tuple[float, float]]:
        """The intervals in which no process of this role was up, between the start of the first and the end of the last
        one.
        """
        uptimes = sorted(
            (uptime.from_s, uptime.to_s) for uptime in self.history.of(ProcessUptime) if role in uptime.roles
        )
        covered_until_s = uptimes[0][0] if uptimes else 0.0
        for from_s, to_s in uptimes:
            if from_s > covered_until_s:
                yield covered_until_s, from_s
            covered_until_s = max(covered_until_s, to_s)

    @cached_property
    def beacons(self) -> list[tuple[int, Beacon]]:
        """The beacons of replicas, by offset."""
        records = self.records.get(REPLICAS_0, ())
        return [(record.offset, msgspec.json.decode(record.value, type=Beacon)) for record in records]

    @cached_property
    def decided(self) -> dict[str, bytes]:
        """The expected contents of the decisions topic, by key: in order, partition by partition."""
        return {key: value for listener in self._listeners for key, value in listener.records().items()}

    def _fold(self) -> None:
        by_topic = folds_by_version(folds_of(self.partition_count))
        for partition, found in sorted(self.records.items()):
            if partition.topic not in TOPICS.folded:
                continue
            versions, after = by_topic[partition.topic], self._observers(partition)
            listener = DecisionRecorder()
            folded_and_steps = refold(partition, found, versions, self.log_id, after, listener=listener)
            self.folded[partition], self.steps[partition] = folded_and_steps
            if partition.topic in TOPICS.deciding:
                self._listeners.append(listener)
        self.freezes += [Freeze(zone, offset, inf, inf) for zone, offset in self._frozen.items()]

    def _observers(self, partition: Partition) -> list[After]:
        if partition.topic == CLIQUES:
            self.cliques.append(model.Cliques())
            return [self.cliques[-1].apply]
        return [self._note_tables, self._note_freezes] if partition.topic == FLEET else []

    def _note_freezes(self, folded: FoldedPartition, step: Step) -> None:
        if "freezes" not in step.rows:
            return
        offset, frozen = step.record.offset, folded.state.freezes.rows
        for zone in self.zones:
            if zone in frozen or "" in frozen:
                self._frozen.setdefault(zone, offset)
            elif (since := self._frozen.pop(zone, None)) is not None:
                self.freezes.append(Freeze(zone, since, offset, self.appended_s(step.partition, offset)))

    def _note_tables(self, folded: FoldedPartition, step: Step) -> None:
        if step.rows or not step.record.offset:
            for zone, versions in self.tables.items():
                table = tables.table(folded.state, zone)
                versions.setdefault(table.version, table.digest)
                for stage in folded.state.stages_of(zone):
                    if stage and folded.state.staged.canary is not None:
                        canary = tables.table(folded.state, zone, stage)
                        self.canaries[zone].add((canary.version, canary.digest))
