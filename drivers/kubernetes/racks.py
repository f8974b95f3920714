"""The DPURack objects: one for each zone that the plane knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from drivers.kubernetes.observed import Observed
from eventstore.log import FLEET_0, INSTALLS, ZONES, Partition
from eventstore.replicas.replica import Replica
from projections.fleet.withdrawals.budgets import SUBJECT_MEMBERS, Hold
from projections.fold_states import FoldStates
from projections.kubernetes.object_events import Report
from projections.kubernetes.object_names import OWN_LABELS, object_name
from projections.kubernetes.rack_events import RackFacts, rack_events
from projections.kubernetes.rack_status import RackStates, is_known, names_by_zone, rack_status, unknown_since_ms
from projections.kubernetes.statements import StatementTable, acceptance
from projections.kubernetes.status_body import Position, StatusBody
from projections.kubernetes.zone_notices import ZoneNotices
from projections.name_ranges import fold_names
from projections.views.progress import ProgressViews
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.kinds import Kind


class _Spec(msgspec.Struct, frozen=True):
    zone: str = ""


_spec = msgspec.json.Decoder(_Spec)
UNKNOWN_MS = 3_600_000
"""The time after which the object of a zone that the plane does not have is deleted: the zone may come back."""
_SLICE = 1_000
"""Held nodes whose zones are found before other tasks get the event loop."""


class RackObjects:
    """Objects of zones. The plane creates no object for a zone if a user has created one, under any name."""

    kind: Kind = DPU_RACK
    topics = (ZONES, FLEET_0.topic, INSTALLS)

    def __init__(
        self,
        replica: Replica,
        statements: StatementTable,
        *,
        notices: ZoneNotices,
        now_ms: Callable[[], int],
        report: Report,
    ) -> None:
        self._replica = replica
        self._statements = statements
        self._notices = notices
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._report = report
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}
        """Name and message of each Event that the last state of an object called for, by the object's name."""
        self._holds: dict[str, list[Hold]] = {}
        """The open holds that concern a zone's nodes, labels and policies, by zone, the oldest first."""
        self._hold_zones: dict[int, tuple[bytes, frozenset[str]]] = {}
        """The hash of each open hold of members, and the zones of its nodes."""
        self._progress = ProgressViews()
        self._members: dict[Partition, tuple[int, dict[str, list[str]]]] = {}
        self._ranges: dict[str, tuple[Sequence[str], list[str]]] = {}
        self._zone_of: dict[str, str] = {}
        self._objects_of: dict[str, list[str]] = {}

    async def begin_pass(self, changed: set[Partition] | None, found: Mapping[str, Observed]) -> Iterable[str]:
        zones = self._zones()
        self._zone_of = {object_name(zone): zone for zone in sorted(chain(*zones.values()))}
        self._objects_of = {}
        for name, each in found.items():
            self._objects_of.setdefault(zone_of(name, each.spec), []).append(name)
        for partition, names in zones.items():
            if changed is None or partition in changed:
                members = names_by_zone(self._states.zones_at(partition), names)
                self._members[partition] = (self._replica.position(partition), members)
                await asyncio.sleep(0)
        self._ranges = {zone: known for zone, known in self._ranges.items() if zone in self._objects_of}
        self._reported = {name: known for name, known in self._reported.items() if name in found}
        if changed is None or FLEET_0 in changed:
            await self._sort_holds()
        missing = (name for name, zone in self._zone_of.items() if zone not in self._objects_of)
        stale = (zone for zone in self._objects_of if changed is None or self._depends_on(zone, changed))
        return {*missing, *chain.from_iterable(self._objects_of[zone] for zone in stale)}

    def new(self, name: str) -> Mapping[str, Any] | None:
        zone = self._zone_of.get(name)
        if zone is None or any(other != name for other in self._objects_of.get(zone, ())):
            return None
        return spec_of(name, zone)

    def status(self, name: str, found: Observed) -> StatusBody | None:
        zone = zone_of(name, found.spec)
        partition, installs = self._partitions_of(zone)
        self._report_new(name, found.uid, zone, partition)
        position, members = self._members.get(partition, (self._replica.position(partition), {}))
        states = RackStates(
            zones=self._states.zone(zone),
            fleet=self._states.fleet,
            installs=self._states.installs(zone),
            epoch=self._replica.generation,
            ranges=self._ranges_of(zone, members.get(zone, ())),
        )
        return rack_status(
            zone,
            states,
            Position(
                self._replica.generation, self._replica.position(FLEET_0), position, self._replica.position(installs)
            ),
            self._progress,
            observed_generation=found.generation,
            now_ms=self._now_ms(),
            time_ms=max(self._replica.folded(each).time_ms for each in (partition, installs, FLEET_0)),
            accepted=acceptance(self._statements.get(self.kind.plural, name), found.status),
        )

    def is_over(self, name: str, found: Observed) -> bool:
        """Whether the object's zone has been unknown for UNKNOWN_MS, and the object is as the plane created it. An
        object that a user created or edited is the user's to delete."""
        since_ms = unknown_since_ms(found.status)
        if not 0 < since_ms < self._now_ms() - UNKNOWN_MS or found.generation != 1 or found.labels != OWN_LABELS:
            return False
        zone = zone_of(name, found.spec)
        is_ours = msgspec.json.decode(found.spec) == spec_of(name, zone)
        return is_ours and not is_known(zone, self._states.zone(zone), self._states.fleet)

    def objects_of(self, zone: str) -> Sequence[str]:
        """The names of the objects of a zone, as of the last pass."""
        return self._objects_of.get(zone, ())

    def _report_new(self, name: str, uid: str, zone: str, partition: Partition) -> None:
        """Report the Events that the state of a zone calls for, except those that its last state called for already."""
        facts = RackFacts(
            zone=zone,
            zones=self._states.zone(zone),
            partition=partition,
            quarantined=self._replica.folded(partition).quarantined,
            holds=self._holds.get(zone, ()),
            notice=self._notices.get(zone),
        )
        events = {(event.name, event.message): event for event in rack_events(name, uid, facts)}
        before = self._reported.get(name, frozenset())
        self._reported[name] = frozenset(events)
        for key, event in events.items():
            if key not in before:
                self._report(event)

    async def _sort_holds(self) -> None:
        """Sort the open holds by zone. A hold of members concerns the zones of its nodes. Any other hold concerns the
        zones that it names. Many nodes may be held, so their zones are found again only after the hold has changed."""
        fleet = self._states.fleet
        holds = sorted(fleet.holds.rows.values(), key=lambda row: row.id)
        known, self._hold_zones = self._hold_zones, {}
        by_zone: dict[str, list[Hold]] = {}
        for row in holds:
            zones = frozenset((*row.zones, *filter(None, (row.zone,))))
            if row.subject == SUBJECT_MEMBERS:
                before = known.get(row.id)
                zones = before[1] if before is not None and before[0] == row.hash else await self._zones_of_held(row.id)
                self._hold_zones[row.id] = (row.hash, zones)
            for zone in zones:
                by_zone.setdefault(zone, []).append(row)
        self._holds = by_zone

    async def _zones_of_held(self, hold: int) -> frozenset[str]:
        fleet, zones = self._states.fleet, set()
        for place, name in enumerate([*fleet.held_names.get(hold, ())]):
            if place and place % _SLICE == 0:
                await asyncio.sleep(0)
            member = fleet.members.rows.get(name)
            if member is not None:
                zones.add(member.zone)
        return frozenset(zones)

    def _ranges_of(self, zone: str, names: Sequence[str]) -> list[str]:
        """The names as ranges, cached until the names change: a few hundred names take a millisecond."""
        known = self._ranges.get(zone)
        if known is None or known[0] != names:
            known = self._ranges[zone] = (names, fold_names(names))
        return known[1]

    def _zones(self) -> dict[Partition, list[str]]:
        """The zones that the plane knows, by partition of zones."""
        zones = {partition: self._states.zones_at(partition).zones() for partition in self._replica.partitions(ZONES)}
        for zone in self._states.fleet.known_zones():
            if zone and self._states.zone(zone).existing_zone(zone) is None:
                zones[self._replica.partition_for(ZONES, zone)].append(zone)
        return zones

    def _partitions_of(self, zone: str) -> tuple[Partition, Partition]:
        return self._replica.partition_for(ZONES, zone), self._replica.partition_for(INSTALLS, zone)

    def _depends_on(self, zone: str, changed: set[Partition]) -> bool:
        return FLEET_0 in changed or not changed.isdisjoint(self._partitions_of(zone))


def spec_of(name: str, zone: str) -> dict[str, str]:
    """The spec of an object that the plane creates."""
    return {} if zone == name else {"zone": zone}


def zone_of(name: str, spec: bytes) -> str:
    """The zone of an object: the zone in its spec, or else the name of the object."""
    return _spec.decode(spec).zone or name
