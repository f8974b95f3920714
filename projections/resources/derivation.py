"""Everything that follows from the objects of a partition, kept up to date with their changes.

A derivation is a cache beside the fold: the same objects give the same derivation, in whatever order they came. An
update costs what depends on the changed objects: a label of a host is matched with the DPUSets of its namespace, a
template concerns the DPUDeployments that refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from projections.resources import cluster_objects, devices
from projections.resources.claims import Claims
from projections.resources.cluster_objects import ClusterObjects
from projections.resources.deployments.children import Derived, derived
from projections.resources.deployments.naming import owner_value
from projections.resources.deployments.prerequisites import prerequisites
from projections.resources.deployments.specs import DPUDeploymentSpec
from projections.resources.dpus import EffectiveSet, allocated_cluster, dpu_id, wanted_dpu
from projections.resources.host_index import Keys
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU, DPU_DEPLOYMENT, DPU_FLAVOR_TEMPLATE, DPU_SET
from projections.resources.lookup import collection
from projections.resources.rollouts.pins import with_pin
from projections.resources.rollouts.released import cluster_of
from projections.resources.rollouts.strategy import rollout_annotations
from projections.resources.selecting import Selecting, selecting
from projections.resources.selection import Selection
from projections.resources.services.system import system_services
from projections.resources.specs import DPUSetSpec, read
from projections.resources.state import COLLECTED, ObjectId, Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted, digest
from schemas.resources.dpf.names import OWNING_DEPLOYMENT

SLICE_DPUS = 100
"""Number of DPUs that are derived at once: about two milliseconds."""


class Derivation:
    """The wanted objects of one partition."""

    def __init__(self) -> None:
        self.deployments: dict[str, Derived | str] = {}
        """The objects that each DPUDeployment wants, or the fault of its spec."""
        self.children = Claims()
        """The children of DPUDeployments, and the components of the DPFOperatorConfig."""
        self.component_faults: dict[str, str] = {}
        """Why the components of a DPFOperatorConfig cannot be derived."""
        self.sets: dict[str, EffectiveSet] = {}
        self.set_faults: dict[str, str] = {}
        """Why the spec of a DPUSet cannot be read."""
        self.selection = Selection()
        self.dpus = Claims()
        """The DPUs of devices. Each device wants at most one."""
        self.in_clusters = ClusterObjects()

    def update(self, state: ResourcesState, keys: Iterable[str]) -> Keys:
        """Take over the changes of these objects. Returns the keys of wanted objects that changed."""
        changed: Keys = {}
        for _ in self.updating(state, keys, changed):
            pass
        return changed

    def updating(self, state: ResourcesState, keys: Iterable[str], changed: Keys) -> Iterator[None]:
        """Take over the changes of these objects in slices: one DPUSet may concern a whole fleet. The keys of wanted
        objects that changed are added to `changed`. The state may change between two slices; an update with the keys
        of those changes must follow. Until the end of the last update, the derivation is inconsistent."""
        rows = state.objects.rows
        by_kind: dict[str, Keys] = {}
        stale: Keys = {}
        for key in keys:
            kind = object_id(key).kind
            by_kind.setdefault(kind, {})[key] = None
            if kind == DPU_DEPLOYMENT:
                stale[key] = None
            stale |= {each: None for each in state.referrers.get(key, ()) if object_id(each).kind == DPU_DEPLOYMENT}
        children: Keys = {}
        for key in stale:
            children |= self._derive_deployment(key, state)
            yield
        for key in by_kind.get(DPF_OPERATOR_CONFIG, ()):
            children |= self._derive_components(key, rows)
        changed |= children
        sets = by_kind.get(DPU_SET, {}) | {key: None for key in children if object_id(key).kind == DPU_SET}
        for key in stale:
            # the age of a set is that of its deployment, which may be another one with the same wishes
            sets |= {each: None for each in self.children.of_owner(key) if object_id(each).kind == DPU_SET}
            sets |= self._stated_sets(key, state)
        for key in by_kind.get(DPU_FLAVOR_TEMPLATE, ()):
            sets |= {each: None for each, found in self.sets.items() if _template_key(found.at, found.spec) == key}
        hosts = [key for kind in sorted(devices.KINDS) for key in by_kind.get(kind, ())]
        touched = self.selection.update_hosts(rows, hosts)
        yield from self._derive_sets(sets, state, touched)
        touched |= self._allocated(by_kind.get(DPU, {}), state)
        for number, key in enumerate(touched, 1):
            changed |= self._derive_dpu(key, state)
            if number % SLICE_DPUS == 0:
                yield
        for key in self._concerned_in_clusters(by_kind, children, state):
            row = self.effective_row(key, state)
            changed |= self.in_clusters.put(state, key, row, lambda other: self.effective_row(other, state))
            yield

    def wanted(self) -> Iterator[Wanted]:
        """All wanted objects, sorted by key: children of DPUDeployments, then DPUs, then objects in DPU clusters."""
        for claims in (self.children, self.dpus, self.in_clusters.claims):
            for key in sorted(claims.winners):
                yield claims.winners[key]

    def holds(self, deployment: str) -> bool:
        """Whether a deployment cannot be derived completely: whatever exists of it must be kept as it is."""
        found = self.deployments.get(deployment)
        return isinstance(found, str) or (found is not None and not found.prerequisites.is_complete)

    def is_abandoned(self, key: str, row: Resource) -> bool:
        """Whether a stated object is the child of a deployment that does not want it any more. A child that is known
        before its deployment, or while the deployment lacks a prerequisite, counts as any other object."""
        namespace, _, name = row.labels.get(OWNING_DEPLOYMENT, "").partition("_")
        owner = ObjectId(object_id(key).source, DPU_DEPLOYMENT, namespace, name).key
        is_derived = bool(name) and isinstance(self.deployments.get(owner), Derived)
        return is_derived and not self.holds(owner) and key not in self.children.winners

    def _derive_deployment(self, key: str, state: ResourcesState) -> Keys:
        rows = state.objects.rows
        row = rows.get(key)
        self.deployments.pop(key, None)
        if row is None or row.deleted_ms:
            return self.children.put(key, (0, key), ())
        at, spec = object_id(key), read(DPUDeploymentSpec, row)
        if isinstance(spec, str):
            self.deployments[key] = spec
            return self.children.put(key, (row.created_ms, key), ())
        found = self.deployments[key] = derived(
            at, spec, prerequisites(at, spec, rows, state.seen), rollout_annotations(row.annotations)
        )
        return self.children.put(key, (row.created_ms, key), found.children)

    def _derive_components(self, key: str, rows: Mapping[str, Resource]) -> Keys:
        row = rows.get(key)
        self.component_faults.pop(key, None)
        found = [] if row is None or row.deleted_ms else system_services(key, row)
        if isinstance(found, str):
            self.component_faults[key] = found
            found = []
        return self.children.put(key, (row.created_ms if row is not None else 0, key), found)

    def _stated_sets(self, key: str, state: ResourcesState) -> Keys:
        """The stated DPUSets of a deployment. One that the deployment does not want any more selects no device."""
        at = object_id(key)
        rows = state.objects.rows
        stated = state.by_kind.get(f"{at.source}/{DPU_SET}", {})
        return {each: None for each in stated if rows[each].labels.get(OWNING_DEPLOYMENT) == owner_value(at)}

    def _concerned_in_clusters(self, by_kind: Mapping[str, Keys], changed: Keys, state: ResourcesState) -> Keys:
        """The objects whose objects in clusters may have changed: all of them after a change of a DPU cluster."""
        collections = {
            collection(object_id(key).source, kind): None for kind in COLLECTED for key in by_kind.get(kind, ())
        }
        found = self.in_clusters.dependents(
            (*(key for keys in by_kind.values() for key in keys), *changed, *collections)
        )
        wide = self.in_clusters.changed_sources(by_kind, state)
        for kind in sorted(cluster_objects.KINDS):
            found |= by_kind.get(kind, {})
            for source in wide:
                found |= dict.fromkeys(state.of_kind(source, kind))
        children = (*self.children.winners, *changed) if wide else changed
        return found | {key: None for key in children if object_id(key).kind in cluster_objects.KINDS}

    def effective_row(self, key: str, state: ResourcesState) -> Resource | None:
        """An object as its deployment wants it, else as it is stated. An older revision has effect until it is deleted:
        DPUs that have not moved to the newer one still use it."""
        child = self.children.winners.get(key)
        if child is not None:
            return child.as_row(self.children.age(key)[0])
        return state.objects.rows[key] if state.serves(key) else None

    def _derive_sets(self, keys: Iterable[str], state: ResourcesState, touched: Keys) -> Iterator[None]:
        """Read these DPUSets again. The devices whose DPUs may have changed are added to `touched`."""
        rows = state.objects.rows
        found: dict[str, Selecting | None] = {}
        for key in keys:
            earlier, effective = self.sets.pop(key, None), self._effective(key, state)
            self.set_faults.pop(key, None)
            found[key] = None
            if isinstance(effective, str):
                self.set_faults[key] = effective
            elif effective is not None:
                self.sets[key] = effective
                selected = selecting(effective.at, effective.age, effective.spec)
                if isinstance(selected, str):
                    self.set_faults[key] = selected
                else:
                    found[key] = selected
            if effective != earlier:
                touched |= dict.fromkeys(self.selection.members(key))
        yield from self.selection.update_sets(rows, found, touched)

    def _effective(self, key: str, state: ResourcesState) -> EffectiveSet | str | None:
        """A DPUSet as its deployment wants it, else as it is stated; with the template that is pinned."""
        rows = state.objects.rows
        row, child, at = rows.get(key), self.children.winners.get(key), object_id(key)
        if child is not None:
            age, labels, annotations, is_held = self.children.age(key), child.labels, child.annotations, child.is_held
            stated: DPUSetSpec | str = msgspec.convert(child.spec, DPUSetSpec)
        elif row is None or row.deleted_ms or self.is_abandoned(key, row):
            return None
        else:
            age, labels, annotations, is_held = (row.created_ms, key), row.labels, row.annotations, False
            stated = read(DPUSetSpec, row)
        if isinstance(stated, str):
            return stated
        spec = with_pin(stated, state.rollouts.rows.get(key))
        template = _template_digest(at, spec, rows)
        return EffectiveSet(
            at, (age[0], key), labels, spec, is_held, template, stated, rollout_annotations(annotations)
        )

    def _allocated(self, keys: Iterable[str], state: ResourcesState) -> Keys:
        """The devices of these DPUs whose DPU cluster is not the one that they are allocated to."""
        found: Keys = {}
        for key in keys:
            wanted = self.dpus.winners.get(key)
            if wanted is not None and allocated_cluster(wanted) != cluster_of(state, key):
                found |= dict.fromkeys(self.dpus.claimants(key))
        return found

    def _derive_dpu(self, device: str, state: ResourcesState) -> Keys:
        winner, found = self.selection.winner(device), self.selection.hosts.devices.get(device)
        if winner is None or found is None:
            return self.dpus.put(device, (0, device), ())
        owner = self.sets[winner]
        cluster = cluster_of(state, dpu_id(owner.at, found).key) if state.allocations.rows else None
        return self.dpus.put(device, (0, device), (wanted_dpu(owner, found, cluster),))


def _template_key(at: ObjectId, spec: DPUSetSpec) -> str | None:
    name = spec.dpu_template.spec.dpu_flavor_template
    return ObjectId(at.source, DPU_FLAVOR_TEMPLATE, at.namespace, name).key if name else None


def _template_digest(at: ObjectId, spec: DPUSetSpec, rows: Mapping[str, Resource]) -> str:
    key = _template_key(at, spec)
    return digest(rows[key].spec) if key is not None and key in rows else ""
