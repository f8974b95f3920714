"""Which DPU cluster each DPU should join, as a proposal: DPF's bin packing.

Among the ready clusters that a DPU's selector matches and that have room, the fullest one is taken, so that the others
stay free for DPUs that only they match. The fold decides, by its own counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from projections.resources.clusters import selected_clusters
from projections.resources.derivation import Derivation
from projections.resources.kinds import DPU_CLUSTER, short_name
from projections.resources.rollouts.allocations import is_cluster_ready, keeps_cluster, nodes_max
from projections.resources.state import ResourcesState, object_id
from projections.resources.wanted import Wanted


class Proposals(NamedTuple):
    """The cluster of each DPU that gets one, empty for a DPU that gives its place back; and the DPUs that must wait."""

    clusters: dict[str, str]
    waiting: dict[str, None]


def propose(state: ResourcesState, derivation: Derivation, dpus: Iterable[str]) -> Proposals:
    """The proposals for these DPUs, in their order."""
    found = Proposals({}, {})
    taken: dict[str, int] = {}
    candidates: dict[tuple[str, bytes], list[str]] = {}
    for dpu in dpus:
        wanted, row = derivation.dpus.winners.get(dpu), state.allocations.rows.get(dpu)
        if wanted is None:
            is_gone = dpu not in state.dpu_rollouts.rows and dpu not in state.observed.rows
            if row is not None and is_gone:
                found.clusters[dpu] = ""
            elif row is not None:
                found.waiting[dpu] = None
            continue
        if row is not None and keeps_cluster(state, dpu, row):
            continue
        selector = selector_of(wanted)
        group = (wanted.at.source, msgspec.json.encode(selector, order="sorted"))
        if group not in candidates:
            candidates[group] = _candidates(state, wanted)
        cluster = _fullest(state, candidates[group], taken)
        if cluster is None:
            found.waiting[dpu] = None
        else:
            taken[cluster] = taken.get(cluster, 0) + 1
            found.clusters[dpu] = cluster
    return found


def selector_of(wanted: Wanted) -> dict[str, object] | None:
    """The selector of DPUClusters that a wanted DPU may join; None for any."""
    cluster = wanted.spec.get("cluster") or {}
    found: dict[str, object] | None = cluster.get("selector")
    return found


def waits_for(state: ResourcesState, wanted: Wanted) -> str:
    """Why a DPU is in no DPU cluster yet, in one sentence without its name; empty if one has a place for it."""
    matching = selected_clusters(state, wanted.at.source, selector_of(wanted))
    if isinstance(matching, str):
        return f"its selector of DPUClusters has a fault: {matching}"
    if not matching:
        every = state.of_kind(wanted.at.source, DPU_CLUSTER)
        return "no DPUCluster matches its selector" if every else "there is no DPUCluster"
    staying = [key for key in matching if not state.objects.rows[key].deleted_ms]
    if not staying:
        return f"{short_name(matching[0])} is being deleted"
    unready = [key for key in staying if not is_cluster_ready(state, key)]
    if _fullest(state, (key for key in staying if key not in unready), {}) is not None:
        return ""
    if unready:
        return f"{short_name(unready[0])} is not ready" + (f", nor {len(unready) - 1} more" if len(unready) > 1 else "")
    names = ", ".join(object_id(key).name for key in staying[:3])
    return f"every DPUCluster that it may join has its maximum of DPUs: {names}"


def _candidates(state: ResourcesState, wanted: Wanted) -> list[str]:
    found = selected_clusters(state, wanted.at.source, selector_of(wanted))
    return [] if isinstance(found, str) else [key for key in found if is_cluster_ready(state, key)]


def _fullest(state: ResourcesState, clusters: Iterable[str], taken: dict[str, int]) -> str | None:
    """The cluster with the highest share of its places taken that has one left; the first by key of several."""
    best: tuple[float, str] | None = None
    for key in clusters:
        limit, count = nodes_max(state, key), state.allocated(key) + taken.get(key, 0)
        if count < limit and (best is None or count / limit > best[0]):
            best = (count / limit, key)
    return best[1] if best is not None else None
