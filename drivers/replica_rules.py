"""The rule tables of a relay's zones, and their DPUs, as the folds of its replica have them."""

from __future__ import annotations

from drivers.rule_source import Current
from eventstore.log import FLEET, INSTALLS, ZONES, Partition, partition_of
from eventstore.replica import Replica
from projections.fleet_state import FleetState
from projections.rules import Delta
from projections.tables import delta, earliest_since, snapshot, table
from projections.zone_state import ZoneState
from schemas.events import RulesInstalled

FLEET_0 = Partition(FLEET, 0)
REPORT_S = 5.0


class ReplicaRules:
    """A RuleSource over a replica that folds fleet and zones."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._partition_count = len(replica.partitions(ZONES))
        self._watch = replica.watch(FLEET)
        self._numbers: dict[str, int] = {}

    @property
    def epoch(self) -> int:
        return self._replica.generation

    async def changed(self) -> bool:
        return bool(await self._watch.changed())

    def current(self, zone: str, since: int) -> Current:
        now = table(self._fleet, zone)
        prefixes = sum(found.prefixes.size() for found in now.sets)
        return Current(now.version, now.digest, now.key, earliest_since(self._fleet, zone, since), prefixes)

    def delta(self, zone: str, since: int) -> Delta | None:
        return delta(self._fleet, zone, since)

    def snapshot(self, zone: str) -> Delta:
        return snapshot(self._fleet, zone)

    def is_frozen(self, zone: str) -> bool:
        return self._fleet.is_frozen(zone)

    def ordinal(self, zone: str, dpu: str) -> int | None:
        found = self._zone(zone).dpus.rows.get(dpu)
        return found.ordinal if found is not None and found.zone == zone else None

    def dpu_count(self, zone: str) -> int:
        return len(self._zone(zone).dpu_index.zone(zone).names)

    async def report(self, event: RulesInstalled) -> None:
        await self._replica.state_fact(self._of(INSTALLS, event.zone), event.zone.encode(), event, timeout_s=REPORT_S)

    @property
    def _fleet(self) -> FleetState:
        state: FleetState = self._replica.state(FLEET_0)
        return state

    def _zone(self, zone: str) -> ZoneState:
        state: ZoneState = self._replica.state(self._of(ZONES, zone))
        return state

    def _of(self, topic: str, zone: str) -> Partition:
        """Asked for every DPU of every heartbeat, so a zone's number is computed once."""
        number = self._numbers.get(zone)
        if number is None:
            number = self._numbers[zone] = partition_of(zone.encode(), self._partition_count)
        return Partition(topic, number)
