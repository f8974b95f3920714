"""Keeps the labels and annotations of the nodes of DPUs that serve as their objects want them, without a new install.

A DPU that is installed gets them when it joins its cluster. For a DPU that is ready, this actor follows the changes of
its objects, and compares what they want with what was observed of the node: an idle plane sends no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from random import Random
from typing import Any

from drivers.internal_events import TURN_S, InternalEvents
from drivers.provisioning.cluster import ClusterNodes
from drivers.provisioning.label_effects import LabelEffects, needs_effect
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.object_facts import ObjectFacts
from drivers.resource_worlds import ResourceWorlds
from eventstore.errors import PermanentError, TransientError
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.kubernetes.dpu_node import patch_of
from projections.resources.change_journal import JournalReader
from projections.resources.clusters import in_cluster
from projections.resources.kinds import DPU, NODE
from projections.resources.live_derivation import LiveDerivation
from projections.resources.state import ResourcesState, object_id
from projections.resources.step_facts import StepFacts, step_facts
from projections.zones.dpus.phases import READY

logger = logging.getLogger(__name__)

RECHECK_S = 30.0
"""Time after which nodes are compared again whose cluster was away, or whose change failed."""
CALL_S = 30.0
CALLS_AT_ONCE = 16


class NodeLabels:
    """Follows the objects of all sources until `run` is cancelled."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        clusters: ClusterNodes,
        maintenances: Maintenances,
        facts: ObjectFacts,
        *,
        role: str,
        rng: Random,
    ) -> None:
        self._effects = LabelEffects(maintenances, facts, self._set_labels, rank=self._rank, rng=rng)
        self.internal_events = InternalEvents(replica, ranks, role)
        self._replica = replica
        self._ranks = ranks
        self._clusters = clusters
        self._role = role
        self._rng = rng
        self._states = FoldStates(replica)
        self._worlds = ResourceWorlds(replica)
        self._wanted: dict[Partition, JournalReader] = defaultdict(JournalReader)
        self._seen: dict[Partition, JournalReader] = defaultdict(JournalReader)
        self._pending: dict[Partition, dict[str, None]] = {}

    @property
    def differing(self) -> int:
        """The number of DPUs whose nodes are not observed as wanted."""
        return sum(map(len, self._pending.values()))

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._effects.run())
            await self._follow_all()

    async def _follow_all(self) -> None:
        partitions = self._replica.partitions(RESOURCES)
        with self._replica.watch(RESOURCES) as watch:
            while True:
                for partition in partitions:
                    await self._follow(partition)
                waits = RECHECK_S * self._rng.uniform(0.5, 1.0) if any(self._pending.values()) else None
                try:
                    async with asyncio.timeout(waits):
                        await watch.changed()
                except TimeoutError:
                    continue

    async def _follow(self, partition: Partition) -> None:
        """Compare the DPUs whose objects or nodes have changed. DPUs that stay different are compared again later."""
        live = await self._worlds.derived(partition)
        pending = self._pending.setdefault(partition, {})
        pending |= dict.fromkeys(self._changed(partition, live))
        places = asyncio.Semaphore(CALLS_AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for name in [*pending]:
                facts = self._differing(partition, live, name)
                if facts is None:
                    del pending[name]
                    self._effects.forget(name)
                elif needs_effect(facts):
                    self._effects.want(name, facts)
                else:
                    self._effects.forget(name)
                    tasks.create_task(self._correct(partition, name, places))

    def _changed(self, partition: Partition, live: LiveDerivation) -> list[str]:
        """The names of DPUs that are wanted differently, or whose nodes were observed anew, since the last call."""
        state = self._states.resources_at(partition)
        wanted = self._wanted[partition].read(live.changed)
        seen = self._seen[partition].read(state.observed_journal)
        if wanted is None or seen is None:
            return [object_id(key).name for key in live.derivation.dpus.winners]
        kinds = (DPU, NODE)
        return [at.name for at in map(object_id, (*wanted, *seen)) if at.kind in kinds]

    def _differing(self, partition: Partition, live: LiveDerivation, name: str) -> StepFacts | None:
        """The facts of a ready DPU whose node is not observed as wanted."""
        state = self._states.resources_at(partition)
        facts = step_facts(state, live.derivation, name)
        if facts is None or not facts.cluster:
            return None
        seen = state.seen.get(facts.key)
        node = _observed_node(state, facts)
        if seen is None or seen.phase != READY or node is None:
            return None
        return None if patch_of(node, facts.node_labels, facts.node_annotations) is None else facts

    async def _correct(self, partition: Partition, name: str, places: asyncio.Semaphore) -> None:
        async with places:
            await asyncio.sleep(TURN_S * self._ranks.rank(name, self._role))
            facts = self._differing(partition, await self._worlds.derived(partition), name)
            if facts is None:
                return
            if await self._set_labels(name, facts):
                self._pending[partition].pop(name, None)

    async def _set_labels(self, name: str, facts: StepFacts) -> bool:
        """Give the node of a DPU its labels and annotations. Returns whether it has them."""
        nodes = self._clusters.of(facts.cluster)
        if nodes is None:
            return False
        try:
            async with asyncio.timeout(CALL_S):
                progress = await nodes.join(name, facts.node_labels, facts.node_annotations)
        except (TransientError, PermanentError, TimeoutError) as error:
            logger.warning("labels of a DPU's node not set, retrying: %s", error, extra={"dpu": name})
            return False
        return progress.is_done

    def _rank(self, name: str) -> int:
        return self._ranks.rank(name, self._role)


def _observed_node(state: ResourcesState, facts: StepFacts) -> dict[str, Any] | None:
    """The node of a DPU as it was observed; None if it was not."""
    seen = state.seen.get(in_cluster(facts.cluster, NODE, "", object_id(facts.key).name).key)
    if seen is None:
        return None
    fields = seen.fields
    metadata = {name: fields.get(name) or {} for name in ("labels", "annotations")}
    return {"metadata": {**metadata, "resourceVersion": ""}}
