"""Reads folds, live or as of a point in the past: finds the partition of a name, and the position of a read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Protocol

from commands import results
from commands.queries.keeping import note_holds
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.log import CLIQUES, FLEET, FLEET_0, INSTALLS, RESOURCES, ZONES, Partition
from eventstore.reasons import Fault, Reason
from eventstore.replicas.folded_log import FoldedLog
from projections.cliques.state import CliquesState
from projections.field_checks import quoted
from projections.fleet import views as fleet_views
from projections.fleet.state import FleetState
from projections.fold_states import FoldStates
from projections.installs.rows import InstallsState
from projections.resources.conditions.world import World
from projections.resources.live_derivation import live_derivation
from projections.resources.state import ResourcesState
from projections.zones.state import ZonesState
from schemas.api import dpuplane_pb2 as pb

_LONGEST_KEY = 128
"""Maximum number of characters in the uid of a domain; a zone's name is shorter (projections/field_checks.py)."""


class PositionWaiting(Protocol):
    """Waits until folds are at least as new as a token."""

    async def wait_for_token(self, token: str, topics: Collection[str], timeout_s: float) -> None: ...


class FoldReader:
    """The states of the folds by subject. Read them between awaits only."""

    def __init__(self, folds: FoldedLog, waiting: PositionWaiting) -> None:
        self._folds = folds
        self._states = FoldStates(folds)
        self._position_waiter = waiting

    async def wait_for_position(self, min_position: str, topics: Collection[str], call: Call) -> None:
        """Wait until these topics are at least as new as the caller asks."""
        await self._position_waiter.wait_for_token(min_position, topics, call.timeout_s)

    @property
    def partition_numbers(self) -> range:
        """Partition numbers of zones, cliques and installs."""
        return range(len(self._folds.partitions(ZONES)))

    @property
    def deciding_topics(self) -> Collection[str]:
        """The topics whose folds decide commands."""
        return self._folds.topics.deciding

    @property
    def generation(self) -> int:
        """The generation of the log, which is the epoch of the device tables."""
        return self._folds.generation

    @property
    def fleet(self) -> FleetState:
        return self._states.fleet

    def with_fleet(self, answer: pb.CommandResult) -> pb.CommandResult:
        """An answer from ledgers. If the command's outcome in fleet differs from the outcome in its zone, the answer
        gets the outcome in fleet.

        A leave of a node that had left before is `unchanged`, and stays `unchanged`. If a hold keeps the node in the
        rule tables, a note names the hold.
        """
        note_holds(answer, self.fleet)
        return results.with_fleet_outcome(
            answer, fleet_views.command_outcome(self.fleet, answer.command_id, _hold(answer))
        )

    def with_hold(self, answer: pb.CommandResult) -> pb.CommandResult:
        """An answer from the ledger of fleet, with the status of the hold that it names."""
        return results.with_fleet_outcome(answer, fleet_views.command_outcome(self.fleet, "", _hold(answer)))

    def zones(self, number: int) -> ZonesState:
        return self._states.zones_at(Partition(ZONES, number))

    def zone(self, zone: str) -> ZonesState:
        """The state of the partition that a zone is in."""
        return self._states.zone(zone)

    def all_zones(self) -> Iterable[ZonesState]:
        return self._states.all_zones()

    def cliques(self, number: int) -> CliquesState:
        return self._states.cliques_at(Partition(CLIQUES, number))

    def installs(self, zone: str) -> InstallsState:
        return self._states.installs(zone)

    def installs_at(self, number: int) -> InstallsState:
        return self._states.installs_at(Partition(INSTALLS, number))

    def resources(self, number: int) -> ResourcesState:
        return self._states.resources_at(Partition(RESOURCES, number))

    async def derive_resources(self, numbers: Collection[int]) -> dict[int, World]:
        """The objects of these partitions and what follows from them, up to date with the folds. Read them before
        the next await.

        The cost is that of the changes since the last read in this process. It is taken in slices, between which other
        calls run.
        """
        while True:
            states = {number: self.resources(number) for number in numbers}
            if all(live_derivation(state).advance(state) for state in states.values()):
                break
            await asyncio.sleep(0)
        return {number: World.of(state, live_derivation(state).derivation) for number, state in states.items()}

    def partition_number(self, key: str) -> int:
        """The partition of a zone or domain. Raises NotFound.

        A name in a query may be as long as a message. A name over the maximum is refused at once, because hashing it
        would block the event loop, and caching it would take memory.
        """
        if len(key) > _LONGEST_KEY:
            reason = f"name: {quoted(key)} is longer than the {_LONGEST_KEY} characters allowed for zones and domains"
            raise NotFound(Fault(reason, Reason.ZONE_NOT_FOUND))
        return self._folds.partition_for(ZONES, key).number

    def token(self, *topics: str, numbers: Iterable[int] = ()) -> str:
        """The token of a read of these partitions of these topics; fleet has one partition only."""
        read = [Partition(topic, number) for topic in topics if topic != FLEET for number in numbers]
        if FLEET in topics:
            read.append(FLEET_0)
        return results.token(self._folds.log_id, {part: self._folds.position(part) for part in read})


def _hold(answer: pb.CommandResult) -> int:
    return answer.hold if answer.HasField("hold") else -1
