"""Events about objects of custom resources: what users want, by source cluster."""

from __future__ import annotations

from schemas.envelope import Event


class ResourcesApplied(Event, frozen=True, gc=False):
    """Objects of one source, each with its complete labels, annotations and spec. No object occurs twice.

    `source` is the cluster in which the objects are, or the name of a plane without Kubernetes. A kind is
    `Kind.group`, for example `BFB.provisioning.dpu.nvidia.com`. A spec is a JSON object. `expected_generations` are
    the generations that the sender compared its objects with: 0 for an absent object, -1 for any. An item is refused if
    the object has another one.

    `uids`, `generations` and `created_ms` are given by a Kubernetes cluster, which assigns them. They are empty for
    objects of a plane without Kubernetes: the fold assigns them. `deleted_ms` are the times at which users deleted
    objects that wait for a finalizer; 0 for other objects.
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
