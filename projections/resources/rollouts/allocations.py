"""The decision about proposals of DPU clusters for DPUs. The fold counts the DPUs of each cluster itself."""

from __future__ import annotations

from typing import NamedTuple

from eventstore.folding.fold import DONE, Decision, Outcome, RecordMetadata, normalize, refusal, refused
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_zone, quoted
from projections.item_outcomes import merged
from projections.resources.items import check_object_name
from projections.resources.kinds import DPU, DPU_CLUSTER, short_name
from projections.resources.rollouts.rows import Allocation
from projections.resources.specs import Spec, read
from projections.resources.state import ObjectId, ResourcesChange, ResourcesState
from schemas.events import MAX_ITEMS, DpusAllocated

NODES_DEFAULT = 1_000
"""Maximum number of DPUs of a DPUCluster that does not say it."""


class ClusterLimits(Spec, frozen=True):
    """The part of a DPUCluster that allocation uses."""

    max_nodes: int | None = None


class _Change(NamedTuple):
    dpu: str
    row: Allocation | None
    outcome: Outcome


def nodes_max(state: ResourcesState, cluster: str) -> int:
    """How many DPUs a DPUCluster takes; 0 if it is absent, deleted or cannot be read."""
    row = state.objects.rows.get(cluster)
    if row is None or row.deleted_ms:
        return 0
    spec = read(ClusterLimits, row)
    return 0 if isinstance(spec, str) else spec.max_nodes or NODES_DEFAULT


def is_cluster_ready(state: ResourcesState, cluster: str) -> bool:
    """Whether a DPUCluster is observed as ready."""
    seen = state.seen.get(cluster)
    return seen is not None and seen.is_ready


def keeps_cluster(state: ResourcesState, dpu: str, row: Allocation) -> bool:
    """Whether a DPU stays in the cluster that it is allocated to. It leaves one that does not exist. It leaves one that
    is being deleted only as long as nothing is observed of it: afterwards it may have joined the cluster."""
    cluster = state.objects.rows.get(row.cluster)
    return cluster is not None and (not cluster.deleted_ms or dpu in state.observed.rows)


def decide_allocations(state: ResourcesState, event: DpusAllocated, at: RecordMetadata) -> Decision:
    """Decide on the proposals of a record, one after the other."""
    if (fault := _fault(event)) is not None:
        return refusal(fault)
    if event.position > at.offset:
        return refusal(Fault(f"position: {event.position} is after {at.offset}, this record", Reason.OUT_OF_ORDER))
    taken: dict[str, int] = {}
    changes = []
    for namespace, name, cluster in zip(event.namespaces, event.names, event.clusters, strict=True):
        dpu = ObjectId(event.source, DPU, namespace, name).key
        if not cluster:
            changes.append(_release(state, dpu))
            continue
        key = ObjectId(event.source, DPU_CLUSTER, *cluster.split("/", 1)).key
        outcome = _allocated(state, event, dpu, key, taken)
        if outcome.code == "done":
            taken[key] = taken.get(key, 0) + 1
        changes.append(_Change(dpu, Allocation(key, at.time_ms), outcome))
    rows = {each.dpu: each.row for each in changes if each.outcome.code == "done"}
    outcomes = [each.outcome for each in changes]
    outcome = outcomes[0] if len(outcomes) == 1 else merged([each.dpu for each in changes], outcomes)
    return normalize(Decision(ResourcesChange(allocations=rows) if rows else None, outcome))


def _allocated(state: ResourcesState, event: DpusAllocated, dpu: str, cluster: str, taken: dict[str, int]) -> Outcome:
    """The outcome of a proposal. `taken` are the places that earlier proposals of the record take."""
    known = state.allocations.rows.get(dpu)
    if known is not None and keeps_cluster(state, dpu, known):
        return Outcome("unchanged", f"{short_name(dpu)} is in {short_name(known.cluster)} already")
    limit, row = nodes_max(state, cluster), state.objects.rows.get(cluster)
    if row is not None and row.deleted_ms:
        fault = Fault(f"clusters: {short_name(cluster)} is being deleted", Reason.RESOURCE_DELETED)
    elif row is None or not limit:
        fault = Fault(f"clusters: {short_name(cluster)} does not exist", Reason.RESOURCE_NOT_FOUND)
    elif row.changed_offset >= event.position:
        reason = f"position: {short_name(cluster)} has changed at {row.changed_offset}, after the proposal"
        fault = Fault(reason, Reason.OUT_OF_ORDER, mark=row.changed_offset + 1)
    elif not is_cluster_ready(state, cluster):
        fault = Fault(f"clusters: {short_name(cluster)} is not ready", Reason.CLUSTER_UNAVAILABLE)
    elif state.allocated(cluster) + taken.get(cluster, 0) >= limit:
        fault = Fault(f"clusters: {short_name(cluster)} has {limit} DPUs, its maximum", Reason.CLUSTER_UNAVAILABLE)
    else:
        return DONE
    return refused(fault)


def _release(state: ResourcesState, dpu: str) -> _Change:
    """A DPU gives its place back once nothing is known of it: neither a plan nor an observation."""
    if dpu not in state.allocations.rows:
        return _Change(dpu, None, Outcome("unchanged", f"{short_name(dpu)} is in no DPU cluster"))
    if dpu in state.dpu_rollouts.rows or dpu in state.observed.rows:
        return _Change(dpu, None, refused(Fault(f"names: {short_name(dpu)} still exists", Reason.OUT_OF_ORDER)))
    return _Change(dpu, None, DONE)


def _fault(event: DpusAllocated) -> str | None:
    count = len(event.names)
    fault = check_zone("source", event.source)
    if not 1 <= count <= MAX_ITEMS:
        return fault or f"names: {count} items must be from 1 to {MAX_ITEMS}"
    if len(event.namespaces) != count or len(event.clusters) != count:
        return (
            fault
            or f"clusters: {len(event.clusters)} values must be one for each of the {count} DPUs, as of namespaces"
        )
    if len({*zip(event.namespaces, event.names, strict=True)}) < count:
        fault = fault or "names: a record must name a DPU once"
    for number, cluster in enumerate(event.clusters):
        fault = fault or check_object_name(f"names[{number}]", event.names[number])
        fault = fault or check_object_name(f"namespaces[{number}]", event.namespaces[number])
        namespace, slash, name = cluster.partition("/")
        is_name = check_object_name("", namespace) is None and check_object_name("", name) is None
        if cluster and not (slash and is_name):
            fault = fault or f"clusters[{number}]: {quoted(cluster)} must be NAMESPACE/NAME"
    return fault
