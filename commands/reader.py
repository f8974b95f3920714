"""Reads the folds of a replica: which partition a name is in, and at which position it was read."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from commands import answers
from commands.calls import Call
from commands.progress import FLEET_0, Progress
from eventstore.log import CLIQUES, FLEET, INSTALLS, ZONES, Partition, partition_of
from eventstore.replica import Replica
from projections.clique_state import CliqueState
from projections.fleet_state import FleetState
from projections.install_rows import InstallsState
from projections.zone_state import ZoneState


class Reader:
    """States of the folds by what they are about. Read them between awaits only."""

    def __init__(self, replica: Replica, progress: Progress) -> None:
        self._replica = replica
        self._progress = progress

    async def settle(self, min_position: str, topics: Collection[str], call: Call) -> None:
        """Wait until these topics are at least as new as the caller asks."""
        await self._progress.reached(min_position, topics, call.timeout_s)

    @property
    def partition_numbers(self) -> range:
        """Of zones, cliques and installs."""
        return range(len(self._replica.partitions(ZONES)))

    @property
    def fleet(self) -> FleetState:
        state: FleetState = self._replica.state(FLEET_0)
        return state

    def zones(self, number: int) -> ZoneState:
        state: ZoneState = self._replica.state(Partition(ZONES, number))
        return state

    def all_zones(self) -> Iterable[ZoneState]:
        return (self.zones(number) for number in self.partition_numbers)

    def cliques(self, number: int) -> CliqueState:
        state: CliqueState = self._replica.state(Partition(CLIQUES, number))
        return state

    def installs(self, zone: str) -> InstallsState:
        state: InstallsState = self._replica.state(Partition(INSTALLS, self.number_of(zone)))
        return state

    def number_of(self, key: str) -> int:
        """The partition of a zone or domain."""
        return partition_of(key.encode(), len(self.partition_numbers))

    def numbers(self, key: str) -> list[int]:
        """The partition of a zone or domain, or all of them if there is none."""
        return [self.number_of(key)] if key else list(self.partition_numbers)

    def token(self, *topics: str, numbers: Iterable[int] = ()) -> str:
        """The position of what was read: these partitions of these topics, fleet's only one if it is among them."""
        read = [Partition(topic, number) for topic in topics if topic != FLEET for number in numbers]
        if FLEET in topics:
            read.append(FLEET_0)
        return answers.token(self._replica.log_id, {part: self._replica.position(part) for part in read})
