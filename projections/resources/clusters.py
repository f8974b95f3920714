"""The DPU clusters that an object is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.label_selectors import LabelSelector, matches
from projections.resources.kinds import DPU_CLUSTER
from projections.resources.selectors import compiled
from projections.resources.state import ObjectId, ResourcesState, object_id


def selected_clusters(state: ResourcesState, source: str, selector: Mapping[str, Any] | None) -> list[str] | str:
    """The keys of DPUClusters of a source with these labels, sorted; or the fault of the selector. One that is being
    deleted counts while it has DPUs: it must keep what serves them."""
    requirements = compiled(selector)
    return requirements if isinstance(requirements, str) else clusters_with(state, source, requirements)


def clusters_with(state: ResourcesState, source: str, requirements: LabelSelector) -> list[str]:
    """The keys of DPUClusters of a source whose labels meet these requirements, sorted."""
    rows = state.objects.rows
    return [
        key
        for key in state.of_kind(source, DPU_CLUSTER)
        if state.serves(key) and matches(requirements, rows[key].labels)
    ]


def cluster_source(key: str) -> str:
    """The source of the objects in a DPU cluster: the source of its DPUCluster, with namespace and name.

    Neither of the last two parts contains a dot, so no two DPUClusters have the same source.
    """
    at = object_id(key)
    return ".".join((at.source, at.namespace, at.name))


def in_cluster(key: str, kind: str, namespace: str, name: str) -> ObjectId:
    """The identity of an object in a DPU cluster."""
    return ObjectId(cluster_source(key), kind, namespace, name)
