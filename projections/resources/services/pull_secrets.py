"""Secrets for pulling images, copied to every DPU cluster when they are written."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.clusters import in_cluster
from projections.resources.kinds import SECRET
from projections.resources.lookup import Lookup
from projections.resources.services.applications import namespace
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import SecretSource, Wanted
from schemas.resources.dpf.names import IMAGE_PULL_SECRET


def of_operator_config(key: str, row: Resource, lookup: Lookup) -> list[Wanted]:
    """The pull secrets of a DPFOperatorConfig in each DPU cluster. Of several configurations the oldest counts."""
    at = object_id(key)
    settings = lookup.settings(at.source)
    if settings.namespace != at.namespace:
        return []
    return [each for name in settings.pull_secrets for each in copies(key, at.namespace, name, lookup)]


def copies(owner: str, where: str, name: str, lookup: Lookup) -> Iterator[Wanted]:
    """The copies of a Secret of the source in each DPU cluster, and their namespaces."""
    source = object_id(owner).source
    clusters = lookup.clusters(source)
    for cluster in clusters if isinstance(clusters, list) else ():
        yield namespace(owner, cluster, where)
        yield Wanted(
            at=in_cluster(cluster, SECRET, where, name),
            owner=owner,
            spec={},
            labels={IMAGE_PULL_SECRET: ""},
            secret=SecretSource(ObjectId(source, SECRET, where, name)),
        )
