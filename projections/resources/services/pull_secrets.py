"""Secrets for pulling images that an object names, copied to every DPU cluster."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.kinds import SECRET
from projections.resources.lookup import Lookup
from projections.resources.services.applications import namespace
from projections.resources.services.secret_copies import labelled_copies, observed_version, secret_copy
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import Wanted


def of_operator_config(key: str, row: Resource, lookup: Lookup) -> list[Wanted]:
    """The pull secrets of a DPFOperatorConfig in each DPU cluster, and those that users label in its namespace, where
    the system's services are. Of several configurations the oldest counts."""
    at = object_id(key)
    settings = lookup.settings(at.source)
    if settings.namespace != at.namespace:
        return []
    wanted = [each for name in settings.pull_secrets for each in copies(key, at.namespace, name, lookup)]
    clusters, known = lookup.clusters(at.source), {each.at.key for each in wanted}
    for cluster in clusters if isinstance(clusters, list) else ():
        labelled = [each for each in labelled_copies(at, cluster, lookup) if each.at.key not in known]
        wanted += [namespace(key, cluster, at.namespace), *labelled] if labelled else []
    return wanted


def copies(owner: str, where: str, name: str, lookup: Lookup) -> Iterator[Wanted]:
    """The copies of a Secret of the source in each DPU cluster, and their namespaces."""
    at = ObjectId(object_id(owner).source, SECRET, where, name)
    clusters, version = lookup.clusters(at.source), observed_version(at, lookup)
    for cluster in clusters if isinstance(clusters, list) else ():
        yield namespace(owner, cluster, where)
        yield secret_copy(owner, cluster, at, version)
