"""The objects of a process's folds and everything that follows from them, derived once for all drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from eventstore.log import RESOURCES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.conditions.world import World
from projections.resources.kinds import DPU
from projections.resources.live_derivation import LiveDerivation, live_derivation
from projections.resources.state import LOCAL, ObjectId
from projections.resources.wanted import Wanted
from projections.zones.rows import Dpu


class ResourceWorlds:
    """The worlds and derivations of all partitions of topic resources. Read them between awaits only."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._states = FoldStates(replica)

    def live(self, partition: Partition) -> LiveDerivation:
        """The derivation of a partition, which may lack changes, or be inconsistent."""
        return live_derivation(self._states.resources_at(partition))

    async def derived(self, partition: Partition) -> LiveDerivation:
        """The derivation of a partition, up to date with its fold. The cost is that of the changes since the last call
        by any driver of the process."""
        while True:
            state = self._states.resources_at(partition)
            live = live_derivation(state)
            if live.advance(state):
                return live
            await asyncio.sleep(0)  # slices of the derivation let other tasks run

    async def world(self, partition: Partition) -> World:
        """The world of a partition, up to date with its fold."""
        live = await self.derived(partition)
        return World.of(self._states.resources_at(partition), live.derivation)

    async def all(self) -> list[World]:
        """The worlds of all partitions."""
        return [await self.world(partition) for partition in self._replica.partitions(RESOURCES)]

    async def world_of(self, source: str) -> World:
        """The world that the objects of a source are in."""
        return await self.world(self._replica.partition_for(RESOURCES, source))

    def zone_row(self, world: World, wanted: Wanted) -> Dpu | None:
        """The row of a wanted DPU in its zone; None if it has none."""
        placement = world.state.placements.rows.get(wanted.at.key)
        return None if placement is None else self._states.zone(placement.zone).dpus.rows.get(wanted.at.name)

    def host_namespaces(self, host: str) -> Collection[str]:
        """The namespaces in which the plane's own source has a host of this name."""
        return self._states.resources(LOCAL).host_namespaces.get(host, {}).keys()

    async def wanted_dpu(self, name: str) -> tuple[World, Wanted] | None:
        """The wanted DPU with this name, and its world; None if no object wants one."""
        for partition in self._replica.partitions(RESOURCES):
            world = await self.world(partition)
            wanted = dpu_named(world, name)
            if wanted is not None:
                return world, wanted
        return None


def dpu_named(world: World, name: str) -> Wanted | None:
    """The wanted DPU with this name. The cost grows with the number of namespaces that have DPUSets."""
    winners = world.derivation.dpus.winners
    places = {(found.at.source, found.at.namespace): None for found in world.derivation.sets.values()}
    for source, namespace in places:
        wanted = winners.get(ObjectId(source, DPU, namespace, name).key)
        if wanted is not None:
            return wanted
    return None
