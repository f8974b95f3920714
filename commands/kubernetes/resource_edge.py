"""Appends the objects of DPF's kinds in one source cluster to topic resources: applied, changed and deleted.

List-watches of each kind call a handler of this edge. The edge compares what they found with the fold, and appends the
difference (see `differences`). An object that a complete list lacks is deleted; without a complete list of its kind,
nothing is. A list from after a restore of the API server from a backup is no evidence of deletions, as objects may have
been created after the backup: these stay, and are counted (see `restores`).

Objects that the plane wrote itself are not stated. One thing about them is: a user who deletes the object of a DPU
releases the DPU to its image.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Generic, TypeVar

from commands.kubernetes.differences import Differences, Record
from commands.kubernetes.list_watch import Watched
from commands.kubernetes.observation_edge import ObservationEdge
from commands.kubernetes.resource_facts import (
    ResourceFacts,
    applied,
    has_devices,
    is_deleted_dpu,
    is_stated,
    read_host,
    read_resource,
    size_of,
)
from commands.kubernetes.restores import Restores
from eventstore.bounded_batches import bounded_batches
from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.kubernetes.object_events import ObjectEvent, Regarding, Report, ignore
from projections.resources.kinds import NODE, SERVICE_CHAIN_SET, SERVICE_INTERFACE_SET
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, Envelope, ResourcesDeleted
from schemas.kubernetes.objects import Custom, Node
from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind

logger = logging.getLogger(__name__)

BYTES_MAX = MAX_COMMAND_BYTES * 3 // 4
"""Maximum estimated size of a record: the encoding adds some bytes per object."""
DELETIONS_S = 10.0
ABSENT_MAX = 20_000
"""Maximum number of remembered deletions."""
_IN_DPU_CLUSTERS = frozenset((SERVICE_CHAIN_SET, SERVICE_INTERFACE_SET))
REFUSED = "ResourceRefused"
"""The reason of an Event about an object that cannot be stated."""
NOT_INSTALLED_AGAIN = "DPUUpToDate"
"""The reason of an Event about a deleted DPU that has its wanted image."""
_NOT_INSTALLED_AGAIN = (
    "the DPU has its wanted image, so its object is made again and nothing is installed; 'dpuplane dpus provision'"
    " installs it again"
)

T = TypeVar("T", bound=Watched)


def key_kind(kind: Kind) -> str:
    """The kind as the fold names it, `Kind.group`."""
    return f"{kind.name}.{kind.group}"


STATED_KINDS: tuple[Kind, ...] = tuple(kind for kind in KINDS if key_kind(kind) not in _IN_DPU_CLUSTERS)
"""The kinds whose objects users state in a source cluster."""
_KINDS = {key_kind(kind): kind for kind in KINDS}


class ResourceEdge:
    """Appends what the log lacks of the objects of one source, while `run` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        observations: ObservationEdge,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        report: Report = ignore,
    ) -> None:
        source = observations.source
        self.faults: dict[str, str] = {}
        """Why an object cannot be stated, by key."""
        self.retained: dict[str, set[str]] = {}
        """The objects of each kind that the last complete list lacks, and that stay, because the API server was
        restored from a backup."""
        self.source = source
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._report = report
        self._actor = f"kubernetes/{source}/{replica.name}"
        self._present: defaultdict[str, dict[str, ResourceFacts]] = defaultdict(dict)
        """The objects that users state, by kind and key."""
        self._complete: set[str] = set()
        """The kinds of which a complete list is known."""
        self._listeners: list[tuple[str, Callable[[], None]]] = []
        self._restores = Restores(observations)
        self._folded: dict[str, str] = {}
        """The uids with which objects were in the fold since their kind was listed, by key. If the fold no longer
        has one of them, another edge has seen its deletion."""
        self._absent: dict[str, str] = {}
        """The uids of objects that were deleted, or that a complete list lacks, by key."""
        self._deleted_dpus: dict[str, str] = {}
        """The uids of the objects of DPUs that the plane wrote and that users delete, by key, until the fold has it."""
        self._restored: set[str] = set()
        """Objects that were listed after a restore of the API server: they replace newer ones."""
        self.differences = Differences(
            replica, ranks, source, self._plan, self._all_keys, rng=rng, on_refused=self._on_refused
        )

    def handler(self, kind: Kind) -> KindHandler[Custom]:
        """The handler of the list-watch of a kind."""
        name = key_kind(kind)

        def read(item: Custom) -> ResourceFacts | str | None:
            return read_resource(self.source, name, item) if is_stated(name, item) else None

        return KindHandler(self, name, read, lambda item: is_deleted_dpu(name, item))

    def node_handler(self) -> KindHandler[Node]:
        """The handler of the list-watch of Nodes, of which only those with DPUs are stated."""
        return KindHandler(self, NODE, lambda node: read_host(self.source, node) if has_devices(node) else None)

    def objects(self, kind: str) -> Mapping[str, ResourceFacts]:
        """The watched objects of a kind that users state, by key."""
        return self._present[kind]

    def is_listed(self, kind: str) -> bool:
        """Whether every object of a kind was listed: an object that is missing then does not exist."""
        return kind in self._complete

    def subscribe(self, kind: str, listener: Callable[[], None]) -> None:
        """Call a function after each change of an object of this kind, and after each complete list."""
        self._listeners.append((kind, listener))

    async def run(self) -> None:
        """Append differences until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_deletions())
            await self.differences.run()

    async def _repeat_deletions(self) -> None:
        """Compare deleted DPUs again: one that had no plan at first may have got one."""
        while True:
            await asyncio.sleep(DELETIONS_S)
            self.differences.mark(self._deleted_dpus)

    # -- what handlers report

    def position(self) -> int:
        """The position of the fold."""
        return self._replica.position(self._replica.partition_for(RESOURCES, self.source))

    def put(self, key: str, uid: str, facts: ResourceFacts | str | None) -> None:
        """Record what an object is now: its facts, why it cannot be stated, or None if no user states it."""
        self.faults.pop(key, None)
        if isinstance(facts, str):
            self._fault(key, uid, facts)
            return  # its last valid state stays
        if facts is None:
            self.remove(key, uid)
            return
        present = self._present[facts.at.kind]
        is_change = not facts.is_same(present.get(key))
        present[key] = facts
        if is_change:
            self._absent.pop(key, None)
            self.differences.mark((key,))
            self._notify(facts.at.kind)

    def remove(self, key: str, uid: str) -> None:
        """Record that an object with this uid is gone, or is not a user's any more."""
        self.faults.pop(key, None)
        kind = _kind_of(key)
        known = self._present[kind].pop(key, None)
        self._restored.discard(key)
        if self._deleted_dpus.get(key) == uid and key not in self._state.dpu_rollouts.rows:
            del self._deleted_dpus[key]
        row = self._state.objects.rows.get(key)
        if known is not None or (row is not None and row.uid == uid):
            self._remember_absent({key: uid})
            self.differences.mark((key,))
            self._notify(kind)

    def delete_dpu(self, key: str, uid: str) -> None:
        """Record that a user deletes the object of a DPU that the plane wrote."""
        row = self._state.dpu_rollouts.rows.get(key)
        if self._deleted_dpus.get(key) != uid and (row is None or row.deleted_uid != uid):
            self._deleted_dpus[key] = uid
            self.differences.mark((key,))
            if row is not None and row.released == row.wanted:
                self._report(ObjectEvent(_regarding(key, uid), NOT_INSTALLED_AGAIN, _NOT_INSTALLED_AGAIN))

    def last_version(self, kind: str) -> int:
        """The highest version of an object of a kind that the fold has, but for those that a restore has lost."""
        found = (row.version for _, row in self._external(kind))
        return max((version for version in found if not self._restores.cover(version)), default=0)

    def list_completed(self, kind: str, listed: set[str], began: int, version: int, *, went_back: bool) -> None:
        """Compare all objects of a kind with the fold. Objects that changed in the fold since the list began are left
        to the watch: another edge has seen a newer state."""
        rows, present = self._state.objects.rows, self._present[kind]
        self._complete.add(kind)
        for key in [key for key in present if key not in listed]:
            del present[key]
        for key in present:
            self._folded.pop(key, None)
        before = {key: row for key, row in self._external(kind) if row.changed_offset < began}
        lacking = [key for key in before if key not in listed]
        self._restored.difference_update(present)
        self._restored.update(key for key, row in before.items() if key in present and _is_older(present[key], row))
        if went_back:
            self._restores.add(version, max((row.version for row in before.values()), default=0))
        self._retain(kind, [key for key in lacking if went_back or self._restores.cover(rows[key].version)])
        self._remember_absent({key: rows[key].uid for key in lacking if key not in self.retained.get(kind, ())})
        self.differences.mark((*lacking, *present))
        self._notify(kind)

    def _external(self, kind: str) -> Iterator[tuple[str, Resource]]:
        """The objects of a kind that the fold has of the cluster."""
        rows = self._state.objects.rows
        for key in self._state.by_kind.get(f"{self.source}/{kind}", ()):
            if rows[key].is_external:
                yield key, rows[key]

    def _retain(self, kind: str, keys: Sequence[str]) -> None:
        self.retained.pop(kind, None)
        if keys:
            self.retained[kind] = set(keys)
            about = {"source": self.source, "kind": kind, "objects": len(keys), "first": keys[0]}
            logger.warning(
                "objects kept although the restored API server lacks them; create and delete them again to remove them",
                extra=about,
            )

    def _remember_absent(self, uids: Mapping[str, str]) -> None:
        """A deletion is remembered, because a late record may bring its object back."""
        self._absent |= uids
        while len(self._absent) > max(ABSENT_MAX, len(uids)):
            del self._absent[next(iter(self._absent))]

    def _notify(self, kind: str) -> None:
        for name, listener in self._listeners:
            if name == kind:
                listener()

    # -- the plan

    @property
    def _state(self) -> ResourcesState:
        return self._states.resources(self.source)

    def _all_keys(self) -> Iterable[str]:
        return (*chain.from_iterable(self._present.values()), *self._absent, *self._deleted_dpus)

    def _find(self, key: str) -> ResourceFacts | None:
        return self._present[_kind_of(key)].get(key)

    def _plan(self, keys: Sequence[str]) -> list[Record]:
        return [*self._records(keys)]

    def _records(self, keys: Sequence[str]) -> Iterator[Record]:
        """The records that the fold lacks about these objects."""
        rows = self._state.objects.rows
        lacking: list[ResourceFacts] = []
        gone: list[tuple[str, str]] = []
        for key in keys:
            facts, row = self._find(key), rows.get(key)
            if facts is not None:
                if key not in self.differences.refused and not self._is_in_fold(facts, row):
                    lacking.append(facts)
                elif row is not None:
                    self._folded[key] = row.uid
            elif row is not None and row.uid == self._absent.get(key):
                gone.append((key, row.uid))
            elif row is None and self._lacks_deletion(key):
                gone.append((key, self._deleted_dpus[key]))
        expected = {facts.at.key: self._expected(facts, rows.get(facts.at.key)) for facts in lacking}
        for batch in bounded_batches(lacking, size_of, items_max=MAX_ITEMS, bytes_max=BYTES_MAX):
            event = applied(self.source, self._envelope(), batch, [expected[facts.at.key] for facts in batch])
            yield Record(event, tuple(facts.at.key for facts in batch))
        if gone:
            yield Record(self._deleted(gone), tuple(key for key, _ in gone))

    def _lacks_deletion(self, key: str) -> bool:
        """Whether the fold lacks the deletion of a DPU that has a plan. Without a plan, nothing is to be released."""
        uid, row = self._deleted_dpus.get(key), self._state.dpu_rollouts.rows.get(key)
        if uid is None or row is None:
            return False
        if row.deleted_uid == uid:
            del self._deleted_dpus[key]
            return False
        return True

    def _is_in_fold(self, facts: ResourceFacts, row: Resource | None) -> bool:
        """Whether the fold has this state of an object, or a newer one that another edge has seen."""
        if row is None or not row.is_external:
            return row is None and self._folded.get(facts.at.key) == facts.uid
        if _is_older(facts, row) and facts.at.key not in self._restored:
            return True
        identity = (row.uid, row.generation, row.created_ms, row.deleted_ms)
        if identity != (facts.uid, facts.generation, facts.created_ms, facts.deleted_ms):
            return False
        return (row.spec, row.labels, row.annotations) == (facts.spec, facts.labels, facts.annotations)

    def _expected(self, facts: ResourceFacts, row: Resource | None) -> int:
        """The generation that an object replaces although it is older."""
        return row.generation if row is not None and row.is_external and _is_older(facts, row) else -1

    def _deleted(self, gone: Sequence[tuple[str, str]]) -> ResourcesDeleted:
        ids = [object_id(key) for key, _ in gone]
        return ResourcesDeleted(
            self._envelope(),
            self.source,
            [at.kind for at in ids],
            [at.namespace for at in ids],
            [at.name for at in ids],
            [uid for _, uid in gone],
        )

    def _envelope(self) -> Envelope:
        return envelope(self.source, self._actor, uuid7(self._now_ms(), self._rng))

    # -- faults

    def _fault(self, key: str, uid: str, fault: str) -> None:
        if self.faults.get(key) != fault:
            self._report(ObjectEvent(_regarding(key, uid), REFUSED, f"the plane cannot take this object: {fault}"))
        self.faults[key] = fault

    def _on_refused(self, key: str, reason: str) -> None:
        facts = self._find(key)
        if facts is not None:
            about = _regarding(key, facts.uid)
            self._report(ObjectEvent(about, REFUSED, f"the plane refused this object: {reason}"))


class KindHandler(Generic[T]):
    """The handler of the list-watch of one kind, which knows the version of the last list by the log."""

    def __init__(
        self,
        edge: ResourceEdge,
        kind: str,
        read: Callable[[T], ResourceFacts | str | None],
        is_deleted_dpu: Callable[[T], bool] = lambda item: False,
    ) -> None:
        self._edge = edge
        self._kind = kind
        self._read = read
        self._is_deleted_dpu = is_deleted_dpu
        self._listed: set[str] | None = None
        self._began = 0
        self._version = 0
        """The resource version of the last complete list."""

    def list_began(self) -> None:
        self._listed = set()
        self._began = self._edge.position()

    def present(self, item: T) -> None:
        key, facts = self._key(item), self._read(item)
        if self._listed is not None and facts is not None:
            self._listed.add(key)
        self._edge.put(key, item.metadata.uid, facts)
        if self._is_deleted_dpu(item):
            self._edge.delete_dpu(key, item.metadata.uid)

    def deleted(self, item: T) -> None:
        key = self._key(item)
        if self._listed is not None:
            self._listed.discard(key)
        self._edge.remove(key, item.metadata.uid)

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or set(), None
        self._edge.list_completed(self._kind, listed, self._began, self._version, went_back=went_back)

    def last_version(self) -> int:
        return self._edge.last_version(self._kind)

    def record_version(self, version: int) -> None:
        self._version = version

    def _key(self, item: T) -> str:
        return ObjectId(self._edge.source, self._kind, item.metadata.namespace, item.metadata.name).key


def _kind_of(key: str) -> str:
    return key.split("/", 2)[1]


def _age(found: ResourceFacts | Resource) -> tuple[int, str, int]:
    """The order of states of an object, as the fold has it."""
    return found.created_ms, found.uid, found.generation


def _is_older(facts: ResourceFacts, row: Resource) -> bool:
    """Whether the fold has a newer state of an object."""
    return _age(facts) < _age(row) or (facts.uid == row.uid and 0 < facts.version < row.version)


def _regarding(key: str, uid: str) -> Regarding:
    at = object_id(key)
    kind = _KINDS.get(at.kind)
    if kind is None:
        return Regarding("v1", at.kind.partition(".")[0], at.name, uid)
    return Regarding(kind.api_version, kind.name, at.name, uid, at.namespace)
