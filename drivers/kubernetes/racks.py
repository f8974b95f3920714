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
from projections.fold_states import FoldStates
from projections.kubernetes.object_names import object_name
from projections.kubernetes.rack_status import RackStates, names_by_zone, rack_status
from projections.kubernetes.statements import StatementTable, acceptance
from projections.kubernetes.status_body import Position, StatusBody
from projections.name_ranges import fold_names
from projections.views.progress import ProgressViews
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.kinds import Kind


class _Spec(msgspec.Struct, frozen=True):
    zone: str = ""


_spec = msgspec.json.Decoder(_Spec)


class RackObjects:
    """Objects of zones. The plane creates no object for a zone if a user has created one, under any name."""

    kind: Kind = DPU_RACK
    topics = (ZONES, FLEET_0.topic, INSTALLS)

    def __init__(self, replica: Replica, statements: StatementTable, *, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._statements = statements
        self._states = FoldStates(replica)
        self._now_ms = now_ms
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
        missing = (name for name, zone in self._zone_of.items() if zone not in self._objects_of)
        stale = (zone for zone in self._objects_of if changed is None or self._depends_on(zone, changed))
        return {*missing, *chain.from_iterable(self._objects_of[zone] for zone in stale)}

    def new(self, name: str) -> Mapping[str, Any] | None:
        zone = self._zone_of.get(name)
        if zone is None or any(other != name for other in self._objects_of.get(zone, ())):
            return None
        return {} if zone == name else {"zone": zone}

    def status(self, name: str, found: Observed) -> StatusBody | None:
        zone = zone_of(name, found.spec)
        partition, installs = self._partitions_of(zone)
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
        return False

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


def zone_of(name: str, spec: bytes) -> str:
    """The zone of an object: the zone in its spec, or else the name of the object."""
    return _spec.decode(spec).zone or name
