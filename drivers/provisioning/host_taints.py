"""Keeps new workload away from hosts whose DPUs do not run their critical services, by a taint of the Node.

For hosts that are nodes of a cluster, this actor compares what follows from the objects with what the cluster states of
its Nodes: an idle plane sends no request, and a taint that somebody removes is set again. No cluster states the taints
of simulated hosts, so a process tells each of them once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from drivers.hosts.host import Hosts
from drivers.internal_events import TURN_S, InternalEvents
from drivers.resource_worlds import ResourceWorlds
from eventstore.errors import PermanentError, TransientError
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.change_journal import JournalReader
from projections.resources.host_readiness import HostReadiness, has_taint
from projections.resources.kinds import DPU
from projections.resources.state import Resource, ResourcesState, object_id

logger = logging.getLogger(__name__)

RECHECK_S = 30.0
"""Time after which the taint of a host is tried again that could not be changed."""
CALL_S = 30.0
CALLS_AT_ONCE = 16
SLICE_HOSTS = 50
"""Number of hosts that are compared at once: about a millisecond."""


class _Told(NamedTuple):
    """The last order to a host, and the version of its Node at that time."""

    is_wanted: bool
    version: int


class _Partition:
    """One partition of the objects, and how far it was read."""

    def __init__(self, worlds: ResourceWorlds, partition: Partition) -> None:
        self.live = worlds.live(partition)
        self.readiness = HostReadiness()
        self.pending: dict[str, None] = {}
        """The Nodes to be compared."""
        self.told: dict[str, _Told] = {}
        self._worlds = worlds
        self._partition = partition
        self._wanted, self._stated = JournalReader(), JournalReader()

    async def derive(self) -> None:
        """Bring the derivation up to date. It is so until the next await."""
        self.live = await self._worlds.derived(self._partition)

    def take_changes(self, state: ResourcesState) -> None:
        """Note the Nodes that the changes of the objects concern."""
        wanted, stated = self._wanted.read(self.live.changed), self._stated.read(state.journal)
        dpus = None if wanted is None else [key for key in wanted if object_id(key).kind == DPU]
        self.pending |= self.readiness.update(state, self.live.derivation, dpus, stated)

    def lacking(self, state: ResourcesState, node: str) -> bool | None:
        """Whether a Node is to get the taint, or to lose it; None if it is as wanted, or the change was written
        already."""
        is_wanted = self.readiness.shall_have_taint(state, self.live.derivation, node)
        told, row = self.told.get(node), state.objects.rows.get(node)
        if is_wanted is None or told == _Told(is_wanted, _version(row)):
            return None
        is_as_wanted = row is not None and row.is_external and has_taint(row) == is_wanted
        return None if is_as_wanted else is_wanted

    def tell(self, state: ResourcesState, node: str, *, is_wanted: bool) -> None:
        """Remember the taint that was written to a Node."""
        self.told[node] = _Told(is_wanted, _version(state.objects.rows.get(node)))


class HostTaints:
    """Follows the objects of the sources that `accepts` names until `run` is cancelled."""

    def __init__(
        self, replica: Replica, ranks: Ranks, hosts: Hosts, *, accepts: Callable[[str], bool], role: str, rng: Random
    ) -> None:
        self.internal_events = InternalEvents(replica, ranks, role)
        self.changed = 0
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        self._hosts = hosts
        self._accepts = accepts
        self._role = role
        self._rng = rng
        worlds = ResourceWorlds(replica)
        self._partitions = {partition: _Partition(worlds, partition) for partition in replica.partitions(RESOURCES)}

    async def run(self) -> None:
        await self._replica.ready()
        with self._replica.watch(RESOURCES) as watch:
            while True:
                for partition, followed in self._partitions.items():
                    await self._follow(partition, followed)
                has_pending = any(each.pending for each in self._partitions.values())
                try:
                    async with asyncio.timeout(RECHECK_S * self._rng.uniform(0.5, 1.0) if has_pending else None):
                        await watch.changed()
                except TimeoutError:
                    continue

    async def _follow(self, partition: Partition, followed: _Partition) -> None:
        """Compare the Nodes that changes concern. Nodes that stay different are compared again later."""
        await followed.derive()
        followed.take_changes(self._states.resources_at(partition))
        places = asyncio.Semaphore(CALLS_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for number, node in enumerate([*followed.pending], 1):
                state = self._states.resources_at(partition)
                if followed.lacking(state, node) is None:
                    del followed.pending[node]
                elif self._accepts(object_id(node).source):
                    tasks.create_task(self._correct(partition, followed, node, places))
                if number % SLICE_HOSTS == 0:
                    await asyncio.sleep(0)
                    await followed.derive()

    async def _correct(self, partition: Partition, followed: _Partition, node: str, places: asyncio.Semaphore) -> None:
        async with places:
            await asyncio.sleep(TURN_S * self._ranks.rank(node, self._role))
            await followed.derive()
            state = self._states.resources_at(partition)
            is_wanted = followed.lacking(state, node)
            ref, address = followed.readiness.host_of(state, followed.live.derivation, node)
            about = {"node": ref.name}
            if is_wanted is not None:
                try:
                    host = self._hosts(ref, address)
                    async with asyncio.timeout(CALL_S):
                        if host is not None:
                            await host.keep_taint(is_wanted=is_wanted)
                except (TransientError, PermanentError, TimeoutError) as error:
                    logger.warning("taint of a host not changed, retrying: %s", error, extra=about)
                    return
                self.changed += host is not None
                followed.tell(state, node, is_wanted=is_wanted)
                logger.info("taint of a host %s", "set" if is_wanted else "removed", extra=about)
            followed.pending.pop(node, None)


def _version(row: Resource | None) -> int:
    return row.changed_offset if row is not None else -1
