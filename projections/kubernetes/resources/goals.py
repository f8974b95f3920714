"""What each object of a cluster shall be, from the objects that are stated and from those that exist.

A cluster is the source cluster, or one of its DPU clusters. Objects that nothing wants any more are deleted only if the
plane wrote them for this source, and children of a DPUDeployment only in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent
from projections.kubernetes.resources.api_kinds import STATED
from projections.kubernetes.resources.foreign_objects import dpu_cluster, is_exclusive, is_foreign, not_copied
from projections.kubernetes.resources.live_object import LiveObject, object_name
from projections.kubernetes.resources.manifests import (
    Manifest,
    can_refer,
    is_own,
    manifest,
    namespace_manifest,
    owner_of,
    owner_reference,
    stated_manifest,
)
from projections.kubernetes.resources.protection import FINALIZERS, waits_for
from projections.kubernetes.resources.statuses import status_of
from projections.kubernetes.resources.writes import NOTHING, Goal
from projections.resources import kinds, stale, views
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.services import consumer_of
from projections.resources.conditions.world import World
from projections.resources.deployments.naming import owner_value
from projections.resources.dpus import without_used
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import (
    CLUSTER_NAME,
    CLUSTER_NAMESPACE,
    CONSUMED_BY,
    DPU_DEVICE_NAME,
    DPU_NODE_NAME,
    OWNING_DEPLOYMENT,
)

_STATED = frozenset(STATED)
DISCOVERED = (kinds.DPU_NODE, kinds.DPU_DEVICE)
"""The kinds of objects that the plane states without a user."""
_OF_DEPLOYMENT = frozenset(stale.REMOVAL_ORDER)
_LEAVE_FIRST = {
    kinds.APP_PROJECT: (kinds.APPLICATION,),
    kinds.SECRET: (kinds.APPLICATION,),
    kinds.SERVICE_ACCOUNT: (kinds.APPLICATION,),
    kinds.TENANT_CONTROL_PLANE: (kinds.APPLICATION, kinds.APP_PROJECT),
    kinds.SERVICE: (kinds.APPLICATION, kinds.TENANT_CONTROL_PLANE),
    kinds.DAEMON_SET: (kinds.APPLICATION, kinds.TENANT_CONTROL_PLANE),
    kinds.CONFIG_MAP: (kinds.APPLICATION, kinds.DAEMON_SET),
}
"""The kinds whose unwanted objects leave the source cluster before those of a kind. Argo CD needs the project, the
cluster's Secret and the cluster itself to remove what an Application has installed."""
_COME_FIRST = frozenset((kinds.APP_PROJECT, kinds.SECRET))
"""The kinds of what an Application needs. Argo CD waits for minutes with one whose cluster it did not know at first."""
_FIRST = frozenset(kind for first in _LEAVE_FIRST.values() for kind in first)

Content = Callable[[Wanted], Mapping[str, Any] | None]
"""The content of a Secret that is made from another one; None while it is not known."""


class LiveObjects:
    """The objects of all clusters as last seen, and which of them were made from which."""

    def __init__(self) -> None:
        self.caches: dict[tuple[str, str], ObjectCache[LiveObject]] = {}
        """By source and kind. Objects have the names `namespace/name`."""
        self.dependents: dict[str, dict[str, None]] = {}
        """The keys of the objects that were made from an object, by its key."""
        self.on_change: Callable[[str, Sequence[str]], None] = lambda key, owners: None
        """Called with the key of an object that has changed, and the keys of the objects that it was made from."""
        self._owners: dict[str, tuple[str, ...]] = {}

    def add(self, source: str, kind: str) -> ObjectCache[LiveObject]:
        """A new cache for the objects of a kind in a cluster."""
        cache: ObjectCache[LiveObject] = ObjectCache(lambda item: object_name(item.metadata))
        self.caches[source, kind] = cache
        cache.subscribe(lambda item: self._index(key_of(source, kind, object_name(item.metadata))))
        return cache

    def remove(self, source: str) -> None:
        """Forget the objects of a cluster."""
        for found in [each for each in self.caches if each[0] == source]:
            for name in self.caches.pop(found).objects:
                self._index(key_of(*found, name))

    def get(self, key: str) -> LiveObject | None:
        """An object by its key."""
        at = object_id(key)
        cache = self.caches.get((at.source, at.kind))
        return cache.objects.get(f"{at.namespace}/{at.name}" if at.namespace else at.name) if cache else None

    def keys(self, source: str, kind: str) -> Iterator[str]:
        """The keys of all objects of a kind."""
        cache = self.caches.get((source, kind))
        for name in cache.objects if cache else ():
            yield key_of(source, kind, name)

    def _index(self, key: str) -> None:
        live, before = self.get(key), self._owners.pop(key, ())
        for owner in before:
            self.dependents[owner].pop(key, None)
            if not self.dependents[owner]:
                del self.dependents[owner]
        owners = tuple(_owners(key, live)) if live is not None else ()
        if owners:
            self._owners[key] = owners
        for owner in owners:
            self.dependents.setdefault(owner, {})[key] = None
        self.on_change(key, (*before, *owners))


class Goals:
    """The goal of each object by its key. `world` gives the present folds, `may_delete` whether they know all objects
    of the source cluster."""

    def __init__(self, source: str, live: LiveObjects, world: Callable[[], World]) -> None:
        self.may_delete: Callable[[], bool] = lambda: True
        self.is_consistent: Callable[[], bool] = lambda: True
        """Whether what is wanted is derived completely. Otherwise there are no goals."""
        self.content: Content = lambda wanted: None
        self.namespaces: dict[str, None] = {}
        """The keys of namespaces that objects of ours need."""
        self._source = source
        self._live = live
        self._world = world

    def goal(self, key: str, live: LiveObject | None) -> Goal:
        """What an object shall be."""
        at, world = object_id(key), self._world()
        wanted = wanted_object(key, world)
        if wanted is not None:
            return self._wanted(at, wanted, live, world)
        if live is None:
            return self._absent(at, world)
        goal = self._stated(at, live, world) if at.kind in _STATED and at.source == self._source else NOTHING
        if owner_of(live) is None:
            return goal
        return goal._replace(is_over=self._is_over(key, live, world))

    def is_exclusive(self, key: str) -> bool:
        """Whether an object is written only if no other one has its name: it is read before it is made."""
        wanted = wanted_object(key, self._world())
        return wanted is not None and is_exclusive(wanted)

    def is_foreign(self, key: str, live: LiveObject) -> bool:
        """Whether an object of others has the name of a wanted one, and is left alone."""
        wanted = wanted_object(key, self._world())
        return wanted is not None and is_foreign(wanted, live)

    def event_of_foreign(self, key: str) -> ObjectEvent | None:
        """The Event about an object of others that is left alone; None if its DPUCluster is not seen."""
        at = object_id(key)
        cluster = dpu_cluster(at.source, self._source)
        live = self._live.get(cluster.key)
        return not_copied(at, cluster, live.metadata.uid) if live is not None else None

    def _wanted(self, at: ObjectId, wanted: Wanted, live: LiveObject | None, world: World) -> Goal:
        if live is not None and is_foreign(wanted, live):
            return NOTHING
        own, status = FINALIZERS.get(at.kind, ()), None
        if live is not None and at.kind in _STATED:
            status = self._status(at.key, live, world, live.metadata.generation)
        found = Goal(finalizers=own, status=status, is_released=live is None or _is_deletion_known(at, live, world))
        seen = world.observed.get(at.key)
        present = without_used(wanted, seen.phase) if seen is not None else wanted
        waits = wanted.is_held or (live is None and any(self._live.get(key) is None for key in _needs(wanted, world)))
        return found if waits else found._replace(manifest=self._manifest(present))

    def waiting(self, key: str) -> Iterator[str]:
        """The keys of the objects that are made only after this one."""
        at, claims = object_id(key), self._world().derivation.in_clusters.claims
        if at.kind in _COME_FIRST and self._live.get(key) is not None:
            for application in claims.of_kind(at.source, kinds.APPLICATION):
                if self._live.get(application) is None:
                    yield application

    def _absent(self, at: ObjectId, world: World) -> Goal:
        """The goal of an object that does not exist and that nothing wants. A search for DPUs states what it found in
        the log alone: it becomes an object of the cluster, which users then own."""
        if at.key in self.namespaces:
            return Goal(manifest=namespace_manifest(at.name))
        row = world.stated(at.key)
        if row is None or row.is_external or row.deleted_ms or at.kind not in DISCOVERED or at.source != self._source:
            return NOTHING
        return Goal(first=stated_manifest(at, row.labels, row.annotations, row.spec, FINALIZERS.get(at.kind, ())))

    def _manifest(self, wanted: Wanted) -> Manifest | None:
        """The manifest of a wanted object; None while its owner or the source of its content is missing."""
        owner, content = object_id(wanted.owner), None
        if wanted.secret is not None:
            content = self.content(wanted)
            if content is None:
                return None
        reference = None
        if can_refer(wanted.at, owner) and owner.kind in _STATED:
            live = self._live.get(owner.key)
            if live is None or live.metadata.deletion_timestamp is not None:
                return None
            reference = owner_reference(owner, live.metadata.uid)
        return manifest(wanted, owner=reference, finalizers=FINALIZERS.get(wanted.at.kind, ()), content=content)

    def _stated(self, at: ObjectId, live: LiveObject, world: World) -> Goal:
        """The goal of an object that a user states: a finalizer, DPF's annotation of an interface that a service uses,
        and a status once the fold knows the object."""
        is_deleting = live.metadata.deletion_timestamp is not None
        is_released = is_deleting and not waits_for(at.key, world, self._live.dependents.get(at.key, ()))
        row = world.stated(at.key)
        status = None
        if row is not None and row.uid == live.metadata.uid:
            status = self._status(at.key, live, world, row.generation)
        annotations = None
        if at.kind == kinds.DPU_SERVICE_INTERFACE and not is_own(live.metadata):
            consumer = consumer_of(at.key, world)
            annotations = {CONSUMED_BY: object_id(consumer).name} if consumer is not None else {}
        own = FINALIZERS.get(at.kind, ())
        return Goal(finalizers=own, status=status, is_released=is_released, annotations=annotations)

    def _status(self, key: str, live: LiveObject, world: World, generation: int) -> Mapping[str, Any] | None:
        found = views.view(key, world)
        if found is None:
            return None
        deleted = live.metadata.deletion_timestamp
        deleted_ms = round(deleted.timestamp() * 1_000) if deleted else 0
        waits = waits_for(key, world, self._live.dependents.get(key, ())) if deleted_ms else ()
        return status_of(key, replace(found.row, deleted_ms=deleted_ms), world, waits, generation)

    def _is_over(self, key: str, live: LiveObject, world: World) -> bool:
        """Whether an object of ours must be deleted: nothing wants it, and it is its turn."""
        owner = owner_of(live)
        at = object_id(key)
        if owner is None or owner.source != self._source or not self.may_delete() or at.kind == kinds.NAMESPACE:
            return False
        if at.kind in _OF_DEPLOYMENT and owner.kind == kinds.DPU_DEPLOYMENT:
            return self._is_child_over(key, owner, world)
        if at.source != self._source:
            return True  # Argo CD needs nothing of ours there
        return not any(self._leaves(kind, world) for kind in _LEAVE_FIRST.get(at.kind, ()))

    def after(self, key: str) -> Iterator[str]:
        """The keys of the objects that may be deleted only after this one."""
        kind = object_id(key).kind
        for other, first in _LEAVE_FIRST.items() if kind in _FIRST else ():
            if kind in first:
                yield from self._live.keys(self._source, other)

    def _leaves(self, kind: str, world: World) -> bool:
        """Whether an object of ours of this kind is there that nothing wants any more."""
        return any(
            wanted_object(key, world) is None and is_own(live.metadata)
            for key in self._live.keys(self._source, kind)
            if (live := self._live.get(key)) is not None
        )

    def _is_child_over(self, key: str, deployment: ObjectId, world: World) -> bool:
        row = world.stated(deployment.key)
        if row is not None and not row.deleted_ms:
            return key in stale.removable(world.state, world.derivation, deployment.key, self._is_ready)
        remaining = [object_id(each).kind for each in self._live.dependents.get(deployment.key, ())]
        first = next((kind for kind in stale.REMOVAL_ORDER if kind in remaining), None)
        return object_id(key).kind == first

    def _is_ready(self, key: str) -> bool:
        found = conditions_of(key, self._world())
        return bool(found) and found[0].holds


def _is_deletion_known(at: ObjectId, live: LiveObject, world: World) -> bool:
    """Whether the fold knows that a user deletes an object that is still wanted. The deletion of a DPU has an effect,
    so its object must not be gone before that."""
    row = world.state.dpu_rollouts.rows.get(at.key)
    return row is None or row.deleted_uid == live.metadata.uid


def wanted_object(key: str, world: World) -> Wanted | None:
    """A wanted object of any cluster."""
    return world.wanted(key) or world.derivation.in_clusters.claims.winners.get(key)


def _needs(wanted: Wanted, world: World) -> Iterator[str]:
    """The keys of the objects that must exist before an object is made: the project and the cluster of an Application,
    if the plane makes them."""
    if wanted.at.kind != kinds.APPLICATION:
        return
    claims, labels = world.derivation.in_clusters.claims, wanted.labels
    cluster = wanted.at._replace(
        kind=kinds.DPU_CLUSTER, namespace=labels.get(CLUSTER_NAMESPACE, ""), name=labels.get(CLUSTER_NAME, "")
    )
    for key in (*claims.of_owner(wanted.owner), *claims.of_owner(cluster.key)):
        secret = claims.winners[key].secret
        if object_id(key).kind == kinds.APP_PROJECT or (secret is not None and secret.form == "argocd-cluster"):
            yield key


def key_of(source: str, kind: str, name: str) -> str:
    """The key of an object by its name in a cache."""
    namespace, _, name = name.rpartition("/")
    return ObjectId(source, kind, namespace, name).key


def _owners(key: str, live: LiveObject) -> Iterator[str]:
    """The keys of the objects that an object was made from."""
    at, owner, labels = object_id(key), owner_of(live), live.metadata.labels or {}
    if at.kind == kinds.NAMESPACE:
        return  # it outlives the object that wanted it
    if owner is not None:
        yield owner.key
        if at.kind == kinds.DPU:
            for kind, label in ((kinds.DPU_NODE, DPU_NODE_NAME), (kinds.DPU_DEVICE, DPU_DEVICE_NAME)):
                if label in labels:
                    yield at._replace(kind=kind, name=labels[label]).key
    elif at.kind in _OF_DEPLOYMENT and OWNING_DEPLOYMENT in labels:
        namespace, _, name = labels[OWNING_DEPLOYMENT].partition("_")
        deployment = at._replace(kind=kinds.DPU_DEPLOYMENT, namespace=namespace, name=name)
        if owner_value(deployment) == labels[OWNING_DEPLOYMENT]:
            yield deployment.key
