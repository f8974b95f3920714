"""Typed access to the states of a replica's folds, by topic.

A state belongs to the replica and changes with the next record: read it between awaits, and look it up again after each
await.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from eventstore.log import FLEET_0, INSTALLS, RESOURCES, ZONES, Partition
from projections.cliques.state import CliquesState
from projections.fleet.state import FleetState
from projections.installs.rows import InstallsState
from projections.resources.state import ResourcesState
from projections.zones.state import ZonesState


class StateSource(Protocol):
    """A replica, which has the states of the folds."""

    def state(self, partition: Partition) -> Any: ...

    def partitions(self, topic: str) -> tuple[Partition, ...]: ...

    def partition_for(self, topic: str, key: str) -> Partition: ...


class FoldStates:
    """States by their subject: a zone, or a partition (`..._at`)."""

    def __init__(self, folded: StateSource) -> None:
        self._folded = folded

    @property
    def fleet(self) -> FleetState:
        state: FleetState = self._folded.state(FLEET_0)
        return state

    def zone(self, zone: str) -> ZonesState:
        """The state of the partition that a zone is in."""
        return self.zones_at(self._folded.partition_for(ZONES, zone))

    def zones_at(self, partition: Partition) -> ZonesState:
        state: ZonesState = self._folded.state(partition)
        return state

    def all_zones(self) -> Iterator[ZonesState]:
        """The states of all zones partitions."""
        return map(self.zones_at, self._folded.partitions(ZONES))

    def cliques_at(self, partition: Partition) -> CliquesState:
        state: CliquesState = self._folded.state(partition)
        return state

    def installs(self, zone: str) -> InstallsState:
        """The state of the partition that a zone's installs are in."""
        return self.installs_at(self._folded.partition_for(INSTALLS, zone))

    def installs_at(self, partition: Partition) -> InstallsState:
        state: InstallsState = self._folded.state(partition)
        return state

    def resources(self, source: str) -> ResourcesState:
        """The state of the partition that the objects of a source are in."""
        state: ResourcesState = self._folded.state(self._folded.partition_for(RESOURCES, source))
        return state

    def resources_at(self, partition: Partition) -> ResourcesState:
        state: ResourcesState = self._folded.state(partition)
        return state
