"""Events about objects of custom resources: what users want, by source cluster."""

from __future__ import annotations

from schemas.envelope import Event


class ResourcesApplied(Event, frozen=True, gc=False):
    """Objects of one source, each with its complete labels, annotations and spec. No object occurs twice.

    `source` is the cluster in which the objects are, or the name of a plane without Kubernetes. A kind is
    `Kind.group`, for example `BFB.provisioning.dpu.nvidia.com`. A spec is a JSON object. `expected_generations` are
    the generations that the sender compared its objects with: 0 for an absent object, -1 for any. An item is refused if
    the object has another one. `expected_revisions` are the offsets of the records that changed the objects last, as
    the sender read them, -1 for any: an item that was made from an older state of the object is refused. An item with
    an expected revision edits an object. One without applies a manifest, which leaves annotations that edits have set.

    `uids`, `generations` and `created_ms` are given by a Kubernetes cluster, which assigns them. They are empty for
    objects of a plane without Kubernetes: the fold assigns them. `deleted_ms` are the times at which users deleted
    objects that wait for a finalizer; 0 for other objects. `resource_versions` are the versions in which the cluster
    reported the objects: a report with a lower version than the last one changes nothing, as a watch may lag behind.
    A report that names the present generation in `expected_generations` always replaces the last one: the cluster was
    restored from a backup.
    """

    schema_id = 35
    source: str
    kinds: list[str]
    namespaces: list[str]
    names: list[str]
    uids: list[str]
    generations: list[int]
    created_ms: list[int]
    deleted_ms: list[int]
    labels: list[dict[str, str]]
    annotations: list[dict[str, str]]
    specs: list[str]
    expected_generations: list[int]
    expected_revisions: list[int] = []
    resource_versions: list[int] = []


class ResourcesDeleted(Event, frozen=True, gc=False):
    """A user deletes objects of one source, or a Kubernetes cluster has deleted them. An empty uid means any
    incarnation.

    In a plane without Kubernetes, an object that others refer to stays until the last of them is gone.
    """

    schema_id = 36
    source: str
    kinds: list[str]
    namespaces: list[str]
    names: list[str]
    uids: list[str]


class ResourcesObserved(Event, frozen=True, gc=False):
    """An observer saw the real things behind objects: devices, downloads, clusters, or objects that others own. No
    object occurs twice.

    `source` is the source of the objects, a DPU cluster for objects in it. The record is in the partition of the source
    cluster. An observation is a JSON object with the fields that folds use. Fields of all kinds are `ready`, `phase`
    and `message`, which is one sentence without the name of the object. An empty observation removes the last one.
    `uids` are the incarnations that were observed; an empty uid means any. `resource_versions` are the versions in
    which a cluster reported the objects, or their absence: an observation with a lower version than the last one
    changes nothing, as a watch may lag behind. One without a version always replaces the last one.

    An observation of DPUs is caused by the records of zones partition `cause_partition` in [from_offset, to_offset). It
    is accepted only if `from_offset` is the end of the last range that was accepted from that partition.
    `cause_partition` is -1 for other observations. The zones partition knew what is wanted up to `seen_offset`.
    """

    schema_id = 50
    source: str
    kinds: list[str]
    namespaces: list[str]
    names: list[str]
    uids: list[str]
    observations: list[str]
    cause_partition: int = -1
    from_offset: int = 0
    to_offset: int = 0
    seen_offset: int = 0
    resource_versions: list[int] = []


class DpusPlaced(Event, frozen=True, gc=False):
    """Wanted DPUs of one source are in these zones. An empty zone ends the placement of a DPU. No DPU occurs twice.

    A DPU that has a zone gets another one only after its zone has reported it as gone.
    """

    schema_id = 43
    source: str
    kinds: list[str]
    namespaces: list[str]
    names: list[str]
    zones: list[str]
