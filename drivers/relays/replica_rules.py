"""The rule tables of a relay's zones and their DPUs, read from the folds of the relay's replica."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.relays.rule_source import CurrentTable
from eventstore.log import FLEET, INSTALLS
from eventstore.replicas.replica import Replica
from projections.fleet.tables.zone_table import delta, earliest_since, snapshot, table
from projections.fold_states import FoldStates
from projections.rules.rule import Delta
from schemas.events import InstallsReported

REPORT_S = 5.0


class ReplicaRules:
    """A RuleSource over a replica that folds fleet and zones."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._watch = replica.watch(FLEET)
        self._cache: dict[tuple[object, int, int], CurrentTable] = {}
        """Results of `current` since the last change, by list, version and base version."""

    @property
    def epoch(self) -> int:
        return self._replica.generation

    def knows(self, epoch: int, version: int) -> bool:
        return self._replica.lineage.knows(epoch, version)

    async def changed(self) -> bool:
        is_changed = bool(await self._watch.changed())
        self._cache.clear()
        return is_changed

    def current(self, zone: str, since: int) -> CurrentTable:
        """The current table; one shared object for all zones with the same rule list, because a relay caches a thousand
        versions for each of hundreds of zones.
        """
        fleet = self._states.fleet
        now = table(fleet, zone)
        asked = (now.key, now.version, since)
        if (cached := self._cache.get(asked)) is None:
            prefixes = sum(found.prefixes.size() for found in now.sets)
            cached = CurrentTable(now.version, now.digest, now.key, earliest_since(fleet, zone, since), prefixes)
            self._cache[asked] = cached
        return cached

    def delta(self, zone: str, since: int) -> Delta | None:
        return delta(self._states.fleet, zone, since)

    def snapshot(self, zone: str) -> Delta:
        return snapshot(self._states.fleet, zone)

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
