"""The objects of a resources partition, and the indexes that are derived from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from eventstore.folding.state_table import StateTable
from projections.resources.change_journal import ChangeJournal
from projections.resources.kinds import DPU, DPU_NODE, DPU_SET, NODE, POD
from projections.resources.network_stages.rows import StagedNetworks, stage_key
from projections.resources.observation import Observation, observation
from projections.resources.references import REFERENCES, references
from projections.resources.rollouts.index import RolloutIndex
from projections.resources.rollouts.rows import Allocation, DpuRollout, Rollout
from projections.staging.course import StagedDpus
from schemas.resources.dpf.names import SERVICES

Row = TypeVar("Row")

LOCAL = "local"
"""The source of objects of a plane without Kubernetes."""
COLLECTED = ("Node.core", "Secret.core", "Service.core", f"DPUServiceTemplate.{SERVICES}")
"""The kinds whose observed objects are indexed by source."""
MAX_OBJECTS = 200_000
"""Maximum number of objects of one partition, of all its sources: with specs of 1 kB they take about 500 MB."""


class ObjectId(NamedTuple):
    """The identity of an object in its source. A kind is `Kind.group`."""

    source: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key of the object's row: no part contains a slash."""
        return "/".join(self)


class Resource(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The row of one object. `spec` is JSON.

    `created_ms`, `changed_ms` and `deleted_ms` are the times of the object's creation, of the last change of its spec
    and of its deletion, 0 if it is not deleted. `changed_offset` is the offset of the record with the last change.
    `is_external` means that a Kubernetes cluster assigns uid and generation, and removes the object. `version` is the
    version in which the cluster reported this state; it grows with each change in the cluster. `edited` are the keys of
    annotations that edits have set, sorted, and no manifest since.
    """

    uid: str
    generation: int
    created_ms: int
    changed_ms: int
    changed_offset: int
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: str
    deleted_ms: int = 0
    is_external: bool = False
    actor: str = ""
    version: int = 0
    edited: tuple[str, ...] = ()


class Observed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last observation of the real thing behind an object, as JSON, and the actor that reported it. `uid` is the
    observed incarnation, empty if unknown; `version` the version in which a cluster first reported this observation, 0
    without a cluster, and after the cluster was restored from a backup."""

    uid: str
    observation: str
    observer: str
    changed_ms: int
    changed_offset: int
    version: int = 0


class Mark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of the last range of offsets that this partition accepted from another one."""

    to_offset: int


class Placement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The zone of a wanted DPU since this offset and time. `ending` is the offset at which the placement was to end, -1
    if it is not."""

    zone: str
    since: int
    ending: int = -1
    since_ms: int = 0


Rows = Mapping[str, Resource | None]
"""New rows by key; None removes one."""

_NO_ROWS: Mapping[str, Any] = {}


class ResourcesChange(NamedTuple):
    """The changes of a decision: new rows by key in each table; None removes one."""

    objects: Rows = _NO_ROWS
    observed: Mapping[str, Observed | None] = _NO_ROWS
    marks: Mapping[str, Mark] = _NO_ROWS
    placements: Mapping[str, Placement | None] = _NO_ROWS
    rollouts: Mapping[str, Rollout | None] = _NO_ROWS
    dpu_rollouts: Mapping[str, DpuRollout | None] = _NO_ROWS
    allocations: Mapping[str, Allocation | None] = _NO_ROWS
    staged_networks: Mapping[str, StagedNetworks | None] = _NO_ROWS
    staged_network_dpus: Mapping[str, StagedDpus | None] = _NO_ROWS


def object_id(key: str) -> ObjectId:
    """The identity in a key. The name may have slashes in the key of an object that only a reference names."""
    return ObjectId(*key.split("/", 3))


def targets(key: str, row: Resource | None, rollout: Rollout | None) -> tuple[str, ...]:
    """The keys of the objects that an object refers to, each once; of a DPUSet also those of its pinned template."""
    at = object_id(key)
    if at.kind not in REFERENCES:
        return ()  # most objects are devices and hosts
    found = [*references(at.kind, msgspec.json.decode(row.spec))] if row is not None else []
    if rollout is not None and rollout.pin:
        pinned = msgspec.json.decode(rollout.pin)  # its fields are those of a DPU, but for the template of its flavor
        found += references(DPU, pinned)
        found += references(DPU_SET, {"dpuTemplate": {"spec": {"dpuFlavorTemplate": pinned.get("dpuFlavorTemplate")}}})
    keys = (ObjectId(at.source, each.kind, each.namespace or at.namespace, each.name).key for each in found)
    return tuple(dict.fromkeys(keys))


class ResourcesState:
    """The objects of one partition, and what is observed of them. `objects` and `observed` are keyed
    `source/kind/namespace/name`. `marks` are the ends of accepted ranges by number of a zones partition. `rollouts` are
    keyed by DPUSet, `dpu_rollouts` and `allocations` by DPU, `staged_networks` by source, and `staged_network_dpus` by
    source and zone.

    Derived are the names of each kind (`by_kind`, keyed `source/kind`), and the objects that refer to each object
    (`referrers`; a DPUSet also refers to the objects of its pinned template), both in sorted or insertion order, never
    as a set; and the observations as values (`seen`), those of some kinds by source, too (`seen_by_kind`), and those of
    unready pods by the key of their Node (`unready_pods`); and the namespaces of the DPUNodes of the plane's own source
    by name (`host_namespaces`). `journal`
    has the keys of the objects that changed last, or whose observations did, and `observed_journal` only the latter.
    `stage_journal` has the sources whose staged networks changed last. `rollout_index` has the DPUs of each DPUSet by
    wave and status. `live` is the derivation that the readers of this
    state share, None until one asks for it. Only `live_derivation.py` reads it, and no decision depends on it.
    """

    def __init__(self) -> None:
        self.objects: StateTable[Resource] = StateTable("objects", Resource)
        self.observed: StateTable[Observed] = StateTable("observed", Observed)
        self.marks: StateTable[Mark] = StateTable("marks", Mark)
        self.placements: StateTable[Placement] = StateTable("placements", Placement)
        self.rollouts: StateTable[Rollout] = StateTable("rollouts", Rollout)
        self.dpu_rollouts: StateTable[DpuRollout] = StateTable("dpu_rollouts", DpuRollout)
        self.allocations: StateTable[Allocation] = StateTable("allocations", Allocation)
        self.staged_networks: StateTable[StagedNetworks] = StateTable("staged_networks", StagedNetworks)
        self.staged_network_dpus: StateTable[StagedDpus] = StateTable("staged_network_dpus", StagedDpus)
        self.rollout_index = RolloutIndex()
        self.journal = ChangeJournal()
        self.observed_journal = ChangeJournal()
        self.stage_journal = ChangeJournal()
        self.live: object = None
        self._clear()

    def _clear(self) -> None:
        self.by_kind: MutableMapping[str, dict[str, None]] = {}
        self.referrers: MutableMapping[str, dict[str, None]] = {}
        self._targets: dict[str, tuple[str, ...]] = {}
        self.seen: dict[str, Observation] = {}
        self.seen_by_kind: MutableMapping[str, dict[str, None]] = {}
        self.unready_pods: MutableMapping[str, dict[str, None]] = {}
        self._node_of_pod: dict[str, str] = {}
        self.host_namespaces: MutableMapping[str, dict[str, None]] = {}
        self._allocated: MutableMapping[str, dict[str, None]] = {}
        self._named_network_dpus: dict[str, Counter[int]] = {}
        self.rollout_index.clear()

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        of_rollouts = (self.rollouts, self.dpu_rollouts, self.allocations)
        of_stages = (self.staged_networks, self.staged_network_dpus)
        return (self.objects, self.observed, self.marks, self.placements, *of_rollouts, *of_stages)

    def rederive(self) -> None:
        self.journal.restart()
        self.observed_journal.restart()
        self.stage_journal.restart()
        self._clear()
        for key in sorted({*self.objects.rows, *self.rollouts.rows}):
            self._index(key)
        self.seen = {key: observation(row.observation) for key, row in self.observed.rows.items()}
        for key in self.seen:
            self._index_seen(key)
        for key in sorted(self.dpu_rollouts.rows):
            self._index_rollout(key)
        for key, named in sorted(self.staged_network_dpus.rows.items()):
            self._count_named(key, None, named)
        for key in sorted(self.allocations.rows):
            self._allocated.setdefault(self.allocations.rows[key].cluster, {})[key] = None

    def observed_before(self, partition: int) -> int:
        """The offset of a zones partition at which its next report on DPUs must begin."""
        mark = self.marks.rows.get(str(partition))
        return mark.to_offset if mark is not None else 0

    def evolve(self, change: ResourcesChange) -> None:
        """Apply a decision."""
        if change.objects:
            self.apply(change.objects)
        if change.observed:
            self.observe(change.observed)
        self.marks.put_all(change.marks)
        for key, placement in change.placements.items():
            if placement is None:
                self.placements.remove(key)
            else:
                self.placements.put(key, placement)
        if change.placements:
            self.journal.record(change.placements)
        if change.rollouts or change.dpu_rollouts or change.allocations:
            self.roll_out(change)
        if change.staged_networks or change.staged_network_dpus:
            self._stage(change)

    def _stage(self, change: ResourcesChange) -> None:
        """Apply the part of a decision that is about staged changes of networks."""
        if change.staged_networks:
            self.stage_journal.record(change.staged_networks)
        for source, row in change.staged_networks.items():
            _put(self.staged_networks, source, row)
        for key, named in change.staged_network_dpus.items():
            before = self.staged_network_dpus.rows.get(key)
            _put(self.staged_network_dpus, key, named)
            self._count_named(key, before, named)

    def _count_named(self, key: str, before: StagedDpus | None, after: StagedDpus | None) -> None:
        counts = self._named_network_dpus.setdefault(key.partition("/")[0], Counter())
        counts.subtract(before.stages.values() if before is not None else ())
        counts.update(after.stages.values() if after is not None else ())

    def named_network_dpus(self, source: str) -> Counter[int]:
        """The number of named DPUs of each stage of the staged change of a source."""
        return self._named_network_dpus.get(source) or Counter()

    def network_stage(self, source: str, zone: str, dpu: str) -> int:
        """The released stage of the networks of a source that a DPU belongs to; 0 if to none, or to the last one."""
        named, row = self.staged_network_dpus.rows.get(stage_key(source, zone)), self.staged_networks.rows.get(source)
        stage = named.stages.get(dpu, 0) if named is not None else 0
        return stage if row is not None and stage in row.cohorts else 0

    def roll_out(self, change: ResourcesChange) -> None:
        """Apply the part of a decision that is about rollouts and allocations."""
        pinned = (key for key, row in change.rollouts.items() if pin_of(row) != pin_of(self.rollouts.rows.get(key)))
        self.journal.record((*pinned, *change.dpu_rollouts, *change.allocations))
        self.rollout_index.journal.record(change.rollouts)
        for key, rollout in change.rollouts.items():
            is_pinned_anew = pin_of(rollout) != pin_of(self.rollouts.rows.get(key))
            _put(self.rollouts, key, rollout)
            if is_pinned_anew:
                self._remove_from_index(key)
                self._index(key)
        for key, dpu in change.dpu_rollouts.items():
            _put(self.dpu_rollouts, key, dpu)
            self._index_rollout(key)
        for key, allocation in change.allocations.items():
            self._allocate(key, allocation)

    def _allocate(self, dpu: str, row: Allocation | None) -> None:
        """Put or remove an allocation. A DPUCluster changes when its first DPU joins, and when its last one leaves."""
        earlier = self.allocations.rows.get(dpu)
        if earlier is not None:
            members = self._allocated[earlier.cluster]
            del members[dpu]
            if not members:
                del self._allocated[earlier.cluster]
                self.journal.record((earlier.cluster,))
        if row is not None:
            if row.cluster not in self._allocated:
                self.journal.record((row.cluster,))
            self._allocated.setdefault(row.cluster, {})[dpu] = None
        _put(self.allocations, dpu, row)

    def allocated(self, cluster: str) -> int:
        """The number of DPUs that are allocated to a DPUCluster."""
        return len(self._allocated.get(cluster, ()))

    def uses(self, key: str) -> int:
        """The number of users of an object."""
        return len(self.referrers.get(key, ())) + self.allocated(key)

    def users(self, key: str) -> Iterator[str]:
        """The keys of what keeps an object that is being deleted: the objects that refer to it, and the DPUs that are
        allocated to it."""
        yield from self.referrers.get(key, ())
        yield from self._allocated.get(key, ())

    def serves(self, key: str) -> bool:
        """Whether an object is to be used: it exists, and is not being deleted unless DPUs are allocated to it."""
        row = self.objects.rows.get(key)
        return row is not None and (not row.deleted_ms or key in self._allocated)

    def observe(self, rows: Mapping[str, Observed | None]) -> None:
        """Put and remove these observations."""
        self.journal.record(rows)
        self.observed_journal.record(rows)
        for key, row in rows.items():
            if row is None:
                self.observed.remove(key)
                self.seen.pop(key, None)
            else:
                self.observed.put(key, row)
                self.seen[key] = observation(row.observation)
            self._index_seen(key)
            if key in self.dpu_rollouts.rows:
                self._index_rollout(key)

    def apply(self, rows: Rows) -> None:
        """Put and remove these objects."""
        self.journal.record(rows)
        for key, row in rows.items():
            self._remove_from_index(key)
            _put(self.objects, key, row)
            self._index(key)

    def targets(self, key: str) -> tuple[str, ...]:
        """The keys of the objects that an object refers to."""
        return self._targets.get(key, ())

    def of_kind(self, source: str, kind: str) -> Sequence[str]:
        """The keys of all objects of a kind, sorted."""
        return sorted(self.by_kind.get(f"{source}/{kind}", ()))

    def seen_of_kind(self, source: str, kind: str) -> Iterator[tuple[str, str]]:
        """The observation of each object of a kind in COLLECTED as JSON text, by key, sorted."""
        assert kind in COLLECTED, kind
        for key in sorted(self.seen_by_kind.get(f"{source}/{kind}", ())):
            yield key, self.seen[key].text

    def _index_seen(self, key: str) -> None:
        source, kind, _ = key.split("/", 2)
        if kind == POD:
            self._index_pod(source, key)
        if kind not in COLLECTED:
            return
        keys = self.seen_by_kind.setdefault(f"{source}/{kind}", {})
        if key in self.seen:
            keys[key] = None
        else:
            keys.pop(key, None)

    def _index_pod(self, source: str, key: str) -> None:
        if (earlier := self._node_of_pod.pop(key, "")) and len(self.unready_pods[earlier]) > 1:
            del self.unready_pods[earlier][key]
        else:
            self.unready_pods.pop(earlier, None)
        if key in self.seen:
            node = self._node_of_pod[key] = ObjectId(source, NODE, "", str(self.seen[key].fields.get("node", ""))).key
            self.unready_pods.setdefault(node, {})[key] = None

    def _index_rollout(self, key: str) -> None:
        seen = self.observed.rows.get(key)
        self.rollout_index.put(key, self.dpu_rollouts.rows.get(key), seen.observation if seen is not None else None)

    def _index(self, key: str) -> None:
        row = self.objects.rows.get(key)
        if row is not None:
            at = object_id(key)
            self.by_kind.setdefault(f"{at.source}/{at.kind}", {})[key] = None
            if (at.source, at.kind) == (LOCAL, DPU_NODE):
                self.host_namespaces.setdefault(at.name, {})[at.namespace] = None
        if found := targets(key, row, self.rollouts.rows.get(key)):
            self._targets[key] = found
        for target in found:
            self.referrers.setdefault(target, {})[key] = None

    def _remove_from_index(self, key: str) -> None:
        at = object_id(key)
        kind = f"{at.source}/{at.kind}"
        self.by_kind.get(kind, {}).pop(key, None)
        if not self.by_kind.get(kind, True):
            del self.by_kind[kind]
        if (at.source, at.kind) == (LOCAL, DPU_NODE) and at.name in self.host_namespaces:
            self.host_namespaces[at.name].pop(at.namespace, None)
            if not self.host_namespaces[at.name]:
                del self.host_namespaces[at.name]
        for target in self._targets.pop(key, ()):
            self.referrers[target].pop(key, None)
            if not self.referrers[target]:
                del self.referrers[target]


def _put(table: StateTable[Row], key: str, row: Row | None) -> None:
    if row is None:
        table.remove(key)
    else:
        table.put(key, row)


def pin_of(row: Rollout | None) -> tuple[str, str]:
    """The part of a rollout that wanted objects depend on."""
    return (row.pin, row.pinned_against) if row is not None else ("", "")
