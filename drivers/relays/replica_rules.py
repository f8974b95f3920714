"""The rule tables of a relay's zones and their DPUs, read from the folds of the relay's replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drivers.relays.rule_source import CurrentTable
from eventstore.log import FLEET, INSTALLS
from eventstore.replicas.replica import Replica
from projections.fleet.tables.zone_table import delta, earliest_since, snapshot, table
from projections.fold_states import FoldStates
from projections.rules.rule import Delta
from schemas.events import InstallsReported

REPORT_S = 5.0
NO_COHORTS: Mapping[str, int] = {}


class ReplicaRules:
    """A RuleSource over a replica that folds fleet and zones."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._watch = replica.watch(FLEET)
        self._cache: dict[tuple[object, int, int], CurrentTable] = {}
        """Results of `current` since the last change, by list, version and base version."""
        self._cohorts: dict[str, tuple[object, object, Mapping[str, int]]] = {}
        """The cohorts of each zone, with the parts of the fold that they were computed from."""

    @property
    def epoch(self) -> int:
        return self._replica.generation

    def knows(self, epoch: int, version: int) -> bool:
        return self._replica.lineage.knows(epoch, version)

    async def changed(self) -> bool:
        is_changed = bool(await self._watch.changed())
        self._cache.clear()
        return is_changed

    def current(self, zone: str, since: int, stage: int = 0) -> CurrentTable:
        """The current table; one shared object for all zones with the same rule list, because a relay caches a thousand
        versions for each of hundreds of zones.
        """
        fleet = self._states.fleet
        now = table(fleet, zone, stage)
        asked = (now.key, now.version, since)
        if (cached := self._cache.get(asked)) is None:
            prefixes = sum(found.prefixes.size() for found in now.sets)
            cached = CurrentTable(now.version, now.digest, now.key, earliest_since(fleet, zone, since, stage), prefixes)
            self._cache[asked] = cached
        return cached

    def delta(self, zone: str, since: int, stage: int = 0) -> Delta | None:
        return delta(self._states.fleet, zone, since, stage)

    def snapshot(self, zone: str, stage: int = 0) -> Delta:
        return snapshot(self._states.fleet, zone, stage)

    def cohorts(self, zone: str) -> Mapping[str, int]:
        fleet = self._states.fleet
        if fleet.staged is None or not fleet.staged.cohorts:
            self._cohorts.clear()
            return NO_COHORTS
        sources = fleet.staged.released, fleet.staged_dpus.rows.get(zone)
        known = self._cohorts.get(zone)
        if known is None or known[0] is not sources[0] or known[1] is not sources[1]:
            known = self._cohorts[zone] = (*sources, fleet.cohorts_of(zone))
        return known[2]

    def is_frozen(self, zone: str) -> bool:
        return self._states.fleet.is_frozen(zone)

    def ordinals_of(self, zone: str, dpus: Sequence[str]) -> list[int | None]:
        found = map(self._states.zone(zone).dpus.rows.get, dpus)
        return [row.ordinal if row is not None and row.zone == zone else None for row in found]

    def registrations(self, zone: str) -> object:
        return self._states.zone(zone).dpu_index.registrations

    def dpu_count(self, zone: str) -> int:
        return len(self._states.zone(zone).dpu_index.zone(zone).names)

    async def report(self, event: InstallsReported) -> None:
        partition = self._replica.partition_for(INSTALLS, event.zone)
        await self._replica.append_event(partition, event.zone.encode(), event, timeout_s=REPORT_S)
