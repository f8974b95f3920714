"""The facts of objects about DPUs, from the folds of resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from drivers.resource_worlds import ResourceWorlds
from eventstore.log import RESOURCES, ZONES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.clusters import in_cluster
from projections.resources.host_effects import Effect, Maintenance, dpu_of_labels, maintenance_of, name_begin
from projections.resources.kinds import DPU_CLUSTER, DPU_NODE, DPU_NODE_MAINTENANCE, NODE
from projections.resources.maintenance_index import MaintenanceIndex
from projections.resources.rollouts.released import cluster_of
from projections.resources.service_gate import awaited_services, operational_wait
from projections.resources.state import ObjectId, ResourcesState, object_id
from projections.resources.step_facts import HostRef, StepFacts, step_facts
from projections.zones.dpus.phases import DELETING, NODE_EFFECT_REMOVAL
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState


class Finding(NamedTuple):
    """A maintenance that a DPU may need, its host and its effect."""

    at: ObjectId
    host: HostRef
    effect: Effect


class ObjectFacts:
    """The facts that objects state about DPUs. Each call derives only the changes since the last one."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._worlds = ResourceWorlds(replica)
        self._maintenances: dict[Partition, MaintenanceIndex] = {}

    async def of(self, dpu: str) -> StepFacts | None:
        """The facts of a DPU; None if no object wants it."""
        for partition in self._replica.partitions(RESOURCES):
            world = await self._worlds.world(partition)
            found = step_facts(world.state, world.derivation, dpu)
            if found is not None:
                return found
        return None

    async def awaited_services(self, facts: StepFacts) -> frozenset[str] | None:
        """The ids of the services that a DPU waits for before it is put into service; None if it waits for all."""
        return awaited_services(await self._worlds.world_of(object_id(facts.key).source), facts)

    async def operational_wait(self, facts: StepFacts) -> str:
        """The operational condition that a DPU with ready services waits for; empty if it waits for none."""
        return operational_wait(await self._worlds.world_of(object_id(facts.key).source), facts)

    def maintenances_of(self, dpu: str, row: Dpu) -> list[Finding]:
        """The maintenances that a DPU needs."""
        if not row.node:
            return []
        begin = name_begin(row.node)
        return [
            found
            for partition in self._replica.partitions(RESOURCES)
            for found in _maintenances(self._states.resources_at(partition), dpu, begin)
        ]

    def shows(self, found: Maintenance) -> bool:
        """Whether the fold has a maintenance. It shows those of a source in the order in which they were made, and so
        has all earlier ones, too."""
        partition = self._replica.partition_for(RESOURCES, found.at.source)
        return self._index_of(partition).knows(self._states.resources_at(partition), found)

    def has_place(self, found: Maintenance) -> bool:
        """Whether a maintenance that the fold shows is among the hosts that may be in maintenance."""
        partition = self._replica.partition_for(RESOURCES, found.at.source)
        return self._index_of(partition).has_place(self._states.resources_at(partition), found)

    def _index_of(self, partition: Partition) -> MaintenanceIndex:
        return self._maintenances.setdefault(partition, MaintenanceIndex())

    async def until_shown(self, found: Maintenance) -> None:
        """Return when the fold has a maintenance."""
        partition = self._replica.partition_for(RESOURCES, found.at.source)
        await self._replica.fold_waits.wait_for(lambda: self.shows(found), partition)

    async def until_place(self, found: Maintenance) -> None:
        """Return when a maintenance has a place. This reads the fold alone, and sends no request."""
        partition = self._replica.partition_for(RESOURCES, found.at.source)
        await self._replica.fold_waits.wait_for(lambda: self.has_place(found), partition)

    def sources_of(self, dpu: str, row: Dpu) -> set[str]:
        """The source of the object that wants a DPU; of one that no object wants, those of its maintenances that the
        present phase ends."""
        wanted = self._states.zone(row.zone).wanted.rows.get(dpu)
        if wanted is not None:
            return {object_id(wanted.object).source}
        if row.phase not in (NODE_EFFECT_REMOVAL, DELETING):
            return set()
        return {each.at.source for each in self.maintenances_of(dpu, row)}

    def cluster_of(self, dpu: str, row: Dpu) -> str:
        """The key of the DPU cluster that a DPU is allocated to; empty if it has none."""
        wanted = self._states.zone(row.zone).wanted.rows.get(dpu)
        if wanted is None:
            return ""
        return cluster_of(self._states.resources(object_id(wanted.object).source), wanted.object) or ""

    def has_cluster(self, source: str) -> bool:
        """Whether a source has a DPUCluster."""
        return bool(self._states.resources(source).by_kind.get(f"{source}/{DPU_CLUSTER}"))

    def clusters_of(self, dpu: str, facts: StepFacts | None) -> list[str]:
        """The DPU clusters in which a DPU is a node, as its objects want it or as it was observed."""
        found = {facts.cluster} if facts is not None and facts.cluster else set()
        for partition in self._replica.partitions(RESOURCES):
            state = self._states.resources_at(partition)
            clusters = (
                key for kind in state.by_kind if kind.endswith(f"/{DPU_CLUSTER}") for key in state.by_kind[kind]
            )
            found |= {key for key in clusters if in_cluster(key, NODE, "", dpu).key in state.observed.rows}
        return sorted(found)

    def neighbors(self, dpu: str, row: Dpu) -> dict[str, Dpu]:
        """The other DPUs of a host, which are all in its zone."""
        state = self._states.zone(row.zone)
        names = state.dpu_index.zone(row.zone).names.values() if row.node else ()
        return {name: state.dpus.rows[name] for name in names if name != dpu and state.dpus.rows[name].node == row.node}

    def without_need(self, found: Maintenance) -> list[str]:
        """The requestors of a maintenance that are DPUs of its host and no longer need it, or no longer exist. Other
        requestors are those of people and of other programs."""
        own = (each for each in found.requestors if each.startswith(f"{found.node.lower()}-"))
        return [each for each in own if not any(_has_effect(zones, each) for zones in self._states.all_zones())]

    def unneeded(self) -> dict[str, Finding]:
        """The maintenances that no DPU needs, or that still count a DPU that needs them no more, by key. A freeze keeps
        those of its zone."""
        found = {}
        for partition in self._replica.partitions(RESOURCES):
            state = self._states.resources_at(partition)
            for key, each in self._index_of(partition).all(state).items():
                if (each.is_lifting or self.without_need(each)) and not self._is_frozen(each):
                    found[key] = _finding(state, each)
        return found

    def label_requestors(self) -> dict[str, list[Finding]]:
        """The maintenances in which labels of DPUs change, by DPU."""
        found: dict[str, list[Finding]] = {}
        for partition in self._replica.partitions(RESOURCES):
            state = self._states.resources_at(partition)
            for each in self._index_of(partition).all(state).values():
                for requestor in each.requestors:
                    if (dpu := dpu_of_labels(requestor)) is not None:
                        found.setdefault(dpu, []).append(_finding(state, each))
        return found

    def _is_frozen(self, found: Maintenance) -> bool:
        """Whether a freeze of all zones, or of the zone of a requestor, keeps a maintenance as it is."""
        rows = (zones.dpus.rows.get(name) for zones in self._states.all_zones() for name in found.requestors)
        return any(map(self._states.fleet.is_frozen, ("", *(row.zone for row in rows if row is not None))))

    async def changed(self) -> None:
        """Return when an object may have changed."""
        await self._replica.fold_waits.changed(*self._replica.partitions(RESOURCES))

    async def zone_changed(self, row: Dpu) -> None:
        """Return when a DPU of the zone may have changed."""
        await self._replica.fold_waits.changed(self._replica.partition_for(ZONES, row.zone))


def _has_effect(zones: ZonesState, dpu: str) -> bool:
    row = zones.dpus.rows.get(dpu)
    return row is not None and row.effect


def _maintenances(state: ResourcesState, dpu: str, begin: str) -> Iterator[Finding]:
    for kinds in sorted(state.by_kind):
        if not kinds.endswith(f"/{DPU_NODE_MAINTENANCE}"):
            continue
        for at in sorted(filter(lambda at: at.name.startswith(begin), map(object_id, state.by_kind[kinds]))):
            row = state.objects.rows[at.key]
            found = maintenance_of(at, row)
            if dpu in found.requestors:
                yield _finding(state, found)


def _finding(state: ResourcesState, found: Maintenance) -> Finding:
    is_external = state.objects.rows[found.at.key].is_external
    return Finding(found.at, _host_of(state, found.at, found.node, is_external=is_external), found.effect)


def _host_of(state: ResourcesState, at: ObjectId, node: str, *, is_external: bool) -> HostRef:
    for named in (ObjectId(at.source, DPU_NODE, at.namespace, node), ObjectId(at.source, NODE, "", node)):
        if named.key in state.objects.rows:
            return HostRef(named, at.namespace, is_external)
    return HostRef(ObjectId(at.source, DPU_NODE, at.namespace, node), at.namespace, is_external)
