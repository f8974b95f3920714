"""Copies of Secrets for pulling images in DPU clusters, as DPF's DPUService controller makes them.

A user labels a Secret of the source with `dpu.nvidia.com/image-pull-secret`. Each DPU cluster that runs a DPUService of
the Secret's namespace gets a copy in that namespace; the DPFOperatorConfig stands for the system's services. A copy
belongs to its Secret, not to a service: services that go do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from projections.resources.clusters import in_cluster
from projections.resources.kinds import SECRET
from projections.resources.lookup import Lookup
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import SecretSource, Wanted
from schemas.resources.dpf.names import IMAGE_PULL_SECRET


class _Seen(msgspec.Struct, frozen=True):
    version: str = ""


_seen = msgspec.json.Decoder(_Seen)


def secret_copy(owner: str, cluster: str, at: ObjectId, version: str) -> Wanted:
    """The copy of a Secret of the source in a DPU cluster, in the namespace of the same name."""
    return Wanted(
        at=in_cluster(cluster, SECRET, at.namespace, at.name),
        owner=owner,
        spec={},
        labels={IMAGE_PULL_SECRET: ""},
        secret=SecretSource(at, version=version),
    )


def labelled_copies(service: ObjectId, cluster: str, lookup: Lookup) -> Iterator[Wanted]:
    """The copies that a DPU cluster gets because of a service: those of all labelled Secrets of its namespace."""
    for key, text in lookup.observed_of_kind(service.source, SECRET):
        at = object_id(key)
        if at.namespace == service.namespace:
            yield secret_copy(key, cluster, at, _seen.decode(text).version)


def observed_version(at: ObjectId, lookup: Lookup) -> str:
    """The version of a Secret of the source; empty if no watch follows it, as it has no label."""
    seen = lookup.observed(at.key)
    return str(seen.get("version", "")) if seen is not None else ""
