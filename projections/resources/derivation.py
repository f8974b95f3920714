"""Everything that follows from the objects of a partition, kept up to date with their changes.

A derivation is a cache beside the fold: the same objects give the same derivation, in whatever order they came. An
update costs what depends on the changed objects: a label of a host is matched with the DPUSets of its namespace, a
template concerns the DPUDeployments that refer to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from projections.resources import devices, networks
from projections.resources.claims import Claims
from projections.resources.cluster_objects import ClusterObjects
from projections.resources.deployments.children import Derived, derived
from projections.resources.deployments.naming import owner_value
from projections.resources.deployments.prerequisites import prerequisites
from projections.resources.deployments.specs import DPUDeploymentSpec
from projections.resources.dpus import EffectiveSet, wanted_dpu
from projections.resources.host_index import Keys
from projections.resources.kinds import DPU_CLUSTER, DPU_DEPLOYMENT, DPU_FLAVOR_TEMPLATE, DPU_SET
from projections.resources.selecting import Selecting, selecting
from projections.resources.selection import Selection
from projections.resources.specs import DPUSetSpec, read
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted, digest
from schemas.resources.dpf.names import OWNING_DEPLOYMENT


class Derivation:
    """The wanted objects of one partition."""

    def __init__(self) -> None:
        self.deployments: dict[str, Derived | str] = {}
        """What each DPUDeployment wants, or why its spec cannot be read."""
        self.children = Claims()
        """The children of DPUDeployments."""
        self.sets: dict[str, EffectiveSet] = {}
        self.set_faults: dict[str, str] = {}
        """Why the spec of a DPUSet cannot be read."""
        self.selection = Selection()
        self.dpus = Claims()
        """The DPUs of devices. Each device wants at most one."""
        self.in_clusters = ClusterObjects()

    def update(self, state: ResourcesState, keys: Iterable[str]) -> Keys:
        """Take over the changes of these objects. Returns the keys of wanted objects that changed."""
        rows = state.objects.rows
        by_kind: dict[str, Keys] = {}
        stale: Keys = {}
        for key in keys:
            kind = object_id(key).kind
            by_kind.setdefault(kind, {})[key] = None
            if kind == DPU_DEPLOYMENT:
                stale[key] = None
            stale |= {each: None for each in state.referrers.get(key, ()) if object_id(each).kind == DPU_DEPLOYMENT}
        changed: Keys = {}
        for key in stale:
            changed |= self._derive_deployment(key, rows)
        sets = by_kind.get(DPU_SET, {}) | {key: None for key in changed if object_id(key).kind == DPU_SET}
        for key in stale:
            sets |= self._stated_sets(key, state)
        for key in by_kind.get(DPU_FLAVOR_TEMPLATE, ()):
            sets |= {each: None for each, found in self.sets.items() if _template_key(found.at, found.spec) == key}
        hosts = [key for kind in sorted(devices.KINDS) for key in by_kind.get(kind, ())]
        touched = self.selection.update_hosts(rows, hosts)
        touched |= self._derive_sets(sets, rows)
        concerned = self._concerned_in_clusters(by_kind, changed, state)
        for key in touched:
            changed |= self._derive_dpu(key)
        for key in concerned:
            changed |= self.in_clusters.put(state, key, self._effective_row(key, rows))
        return changed

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

    def _derive_deployment(self, key: str, rows: Mapping[str, Resource]) -> Keys:
        row = rows.get(key)
        self.deployments.pop(key, None)
        if row is None or row.deleted_ms:
            return self.children.put(key, (0, key), ())
        at, spec = object_id(key), read(DPUDeploymentSpec, row)
        if isinstance(spec, str):
            self.deployments[key] = spec
            return self.children.put(key, (row.created_ms, key), ())
        found = self.deployments[key] = derived(at, spec, prerequisites(at, spec, rows))
        return self.children.put(key, (row.created_ms, key), found.children)

    def _stated_sets(self, key: str, state: ResourcesState) -> Keys:
        """The stated DPUSets of a deployment: what the deployment does not want any more stops to select."""
        at = object_id(key)
        rows = state.objects.rows
        stated = state.by_kind.get(f"{at.source}/{DPU_SET}", {})
        return {each: None for each in stated if rows[each].labels.get(OWNING_DEPLOYMENT) == owner_value(at)}

    def _concerned_in_clusters(self, by_kind: Mapping[str, Keys], changed: Keys, state: ResourcesState) -> Keys:
        """The objects whose objects in DPU clusters may have changed: all of them after a change of a cluster."""
        found: Keys = {}
        for kind in sorted(networks.KINDS):
            found |= by_kind.get(kind, {})
            for source in {object_id(key).source: None for key in by_kind.get(DPU_CLUSTER, ())}:
                found |= dict.fromkeys(state.of_kind(source, kind))
        children = self.children.winners if DPU_CLUSTER in by_kind else changed
        return found | {key: None for key in children if object_id(key).kind in networks.KINDS}

    def _effective_row(self, key: str, rows: Mapping[str, Resource]) -> Resource | None:
        """An object as its deployment wants it, else as it is stated. An older revision has effect until it is deleted:
        DPUs that have not moved to the newer one still use it."""
        row, child = rows.get(key), self.children.winners.get(key)
        if child is not None:
            return child.as_row(self.children.age(key)[0])
        return row if row is not None and not row.deleted_ms else None

    def _derive_sets(self, keys: Iterable[str], rows: Mapping[str, Resource]) -> Keys:
        """Read these DPUSets again. Returns the devices whose DPUs may have changed."""
        found: dict[str, Selecting | None] = {}
        touched: Keys = {}
        for key in keys:
            earlier, effective = self.sets.pop(key, None), self._effective(key, rows)
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
        return touched | self.selection.update_sets(rows, found)

    def _effective(self, key: str, rows: Mapping[str, Resource]) -> EffectiveSet | str | None:
        row, child = rows.get(key), self.children.winners.get(key)
        if child is not None:
            age = (self.children.age(key)[0], key)
            spec = msgspec.convert(child.spec, DPUSetSpec)
            return EffectiveSet(
                child.at, age, child.labels, spec, child.is_held, _template_digest(child.at, spec, rows)
            )
        if row is None or row.deleted_ms or self.is_abandoned(key, row):
            return None
        stated = read(DPUSetSpec, row)
        if isinstance(stated, str):
            return stated
        at = object_id(key)
        return EffectiveSet(at, (row.created_ms, key), row.labels, stated, False, _template_digest(at, stated, rows))

    def _derive_dpu(self, device: str) -> Keys:
        winner, found = self.selection.winner(device), self.selection.hosts.devices.get(device)
        if winner is None or found is None:
            return self.dpus.put(device, (0, device), ())
        return self.dpus.put(device, (0, device), (wanted_dpu(self.sets[winner], found),))


def _template_key(at: ObjectId, spec: DPUSetSpec) -> str | None:
    name = spec.dpu_template.spec.dpu_flavor_template
    return ObjectId(at.source, DPU_FLAVOR_TEMPLATE, at.namespace, name).key if name else None


def _template_digest(at: ObjectId, spec: DPUSetSpec, rows: Mapping[str, Resource]) -> str:
    key = _template_key(at, spec)
    return digest(rows[key].spec) if key is not None and key in rows else ""
