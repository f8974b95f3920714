"""The condition that the objects which an object becomes in DPU clusters are there, and ready."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import BLAMES_MAX
from projections.resources.conditions.world import World
from projections.resources.kinds import short_name
from projections.resources.state import object_id


def unready_in_clusters(key: str, world: World) -> Iterator[Blame]:
    """The blames on the objects that an object becomes in DPU clusters: they are not there, or not ready."""
    claims, own = world.derivation.in_clusters.claims, object_id(key).source
    waiting = [name for name in claims.wanted_by(key) if not _is_ready(name, world) and object_id(name).source != own]
    for name in heapq.nsmallest(BLAMES_MAX, waiting):
        where = f"{short_name(name)} of DPU cluster {_cluster(name, own)}"
        seen = world.observed.get(name)
        if seen is None:
            yield Blame(
                name, f"{where} has not been applied yet (the driver of the cluster reports it)", is_unknown=True
            )
        else:
            yield Blame(name, f"{where} is not ready" + (f": {seen.message}" if seen.message else ""))


def _is_ready(key: str, world: World) -> bool:
    seen = world.observed.get(key)
    return seen is not None and seen.is_ready


def _cluster(key: str, source: str) -> str:
    """The namespace and name of the DPUCluster that an object is in."""
    namespace, _, name = object_id(key).source.removeprefix(f"{source}.").partition(".")
    return f"{namespace}/{name}"
