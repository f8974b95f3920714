"""DPU clusters: a DPU joins as a ready node, nothing is left of deleted DPUs, and a cluster is ready with its control
plane, which lives as long as its DPUCluster is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from eventstore.log import RESOURCES, ZONES, Partition
from projections.resources.clusters import cluster_source, in_cluster
from projections.resources.control_planes.specs import DPUClusterSpec
from projections.resources.derivation import Derivation
from projections.resources.kinds import DPU_CLUSTER, NODE
from projections.resources.rollouts.rows import Allocation
from projections.resources.specs import read
from projections.resources.state import LOCAL, Resource, ResourcesState, object_id
from projections.resources.step_facts import step_facts
from projections.zones.dpus.install_interfaces import is_simulated
from projections.zones.dpus.phases import CLUSTER_CONFIG, DELETING, READY
from projections.zones.rows import Dpu
from schemas import events as e
from schemas.resources.dpf.cluster import KAMAJI
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.checkers.lifecycle import ACTIONS
from tests.simulation.history import (
    BmcCalled,
    ControlPlaneDeleted,
    DpuNodeCommitted,
    FinalControlPlane,
    FinalDpuNode,
)

Found = Iterator[str]


class _Visit(NamedTuple):
    """A stay of a DPU in the phase of its join: the time of its begin, and the last attempt before it."""

    from_s: float
    attempt: int


def check_joins(run: Evidence) -> Found:
    """I33: a join of a DPU cluster succeeds only if the Node of the DPU was ready meanwhile, or the device stood in; a
    DPU that is neither simulated nor wanted joins none. A run of real processes records no calls of devices, and is not
    checked."""
    if not run.history.of(BmcCalled):
        return
    readiness, stood_in = _readiness(run), _stood_in(run)
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        rows: dict[str, Dpu | None] = {}
        wanted: set[str] = set()
        visits: dict[str, _Visit] = {}
        for step in steps:
            at_s, changed = run.appended_s(partition, step.record.offset), dict(step.rows.get("dpus", ()))
            event = step.event
            if isinstance(event, e.StepSucceeded) and event.phase == CLUSTER_CONFIG and event.dpu in changed:
                visit = visits.get(event.dpu, _Visit(at_s, event.attempt))
                is_own = any(visit.attempt < attempt <= event.attempt for attempt in stood_in[event.dpu])
                joins = event.dpu in wanted or not _is_real(rows.get(event.dpu))
                if joins and not is_own and not readiness[event.dpu].was_ready(visit.from_s, at_s):
                    where = f"{partition}@{step.record.offset}"
                    yield f"{where}: {event.dpu} joined its cluster, where its Node was not ready"
            for name, row in changed.items():
                before = rows.get(name)
                if row is not None and row.phase == CLUSTER_CONFIG and (before is None or before.phase != row.phase):
                    visits[name] = _Visit(at_s, row.attempt)
            for name, statement in step.rows.get("wanted_dpus", ()):
                (wanted.discard if statement is None else wanted.add)(name)
            rows |= changed


def _is_real(row: Dpu | None) -> bool:
    """Whether a DPU has a BMC that is not simulated in the process that provisions it."""
    return row is not None and bool(row.bmc_address) and not is_simulated(row.bmc_address)


class _Readiness:
    """When the Node of a DPU was ready."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._is_ready: list[bool] = []

    def add(self, at_s: float, *, is_ready: bool) -> None:
        self._times_s.append(at_s)
        self._is_ready.append(is_ready)

    def was_ready(self, from_s: float, to_s: float) -> bool:
        first, end = bisect_right(self._times_s, from_s), bisect_right(self._times_s, to_s)
        return any(self._is_ready[max(0, first - 1) : end])


def _readiness(run: Evidence) -> defaultdict[str, _Readiness]:
    found: defaultdict[str, _Readiness] = defaultdict(_Readiness)
    for commit in run.history.of(DpuNodeCommitted):
        found[commit.name].add(commit.at_s, is_ready=commit.is_ready)
    return found


def _stood_in(run: Evidence) -> defaultdict[str, list[int]]:
    """The attempts at a join that a simulated device did itself, by DPU: those of DPUs without a DPU cluster."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for call in run.history.of(BmcCalled):
        if call.action == ACTIONS[CLUSTER_CONFIG]:
            found[call.device].append(call.attempt)
    return found


def check_control_planes(run: Evidence) -> Found:
    """I33: a control plane is deleted only once its DPUCluster is, and no DPU is allocated to it any more."""
    for deleted in run.history.of(ControlPlaneDeleted):
        for partition, steps in run.steps.items():
            if partition.topic != RESOURCES:
                continue
            row: Resource | None = None
            allocations: dict[str, Allocation | None] = {}
            for step in steps:
                if step.position > deleted.position:
                    break
                row = dict(step.rows.get("objects", ())).get(deleted.cluster, row)
                allocations |= dict(step.rows.get("allocations", ()))
            is_used = any(each is not None and each.cluster == deleted.cluster for each in allocations.values())
            if row is not None and (is_used or not row.deleted_ms):
                yield f"the control plane of {deleted.cluster} was deleted at {deleted.at_s:.3f} s, and is used"


def check_nodes(run: Evidence) -> Found:
    """I33, at rest: each DPU that is ready and allocated to a DPU cluster is a ready node there, with the labels of its
    objects; no Node is left of a DPU that does not exist; and the fold has observed each Node as it is."""
    nodes = {(node.cluster, node.name): node for node in run.history.of(FinalDpuNode)}
    present = {name for zones in run.zone_states for name in zones.dpus.rows}
    joined_s, deleting_s = _joined_s(run), _deleting_s(run)
    for cluster, name in nodes:
        # The kubelet of a DPU that restarts while it is deleted may join again, and nobody can prevent that.
        if name not in present and joined_s.get((cluster, name), -inf) < deleting_s.get(name, inf):
            yield f"{cluster} has a Node of {name}, which does not exist"
    for partition, folded in run.folded.items():
        if partition.topic == RESOURCES:
            yield from _faults_of_nodes(run, folded.state, nodes)


def _joined_s(run: Evidence) -> dict[tuple[str, str], float]:
    """When each Node that exists at the end was created."""
    found: dict[tuple[str, str], float] = {}
    for commit in run.history.of(DpuNodeCommitted):
        if commit.is_present:
            found.setdefault((commit.cluster, commit.name), commit.at_s)
        else:
            found.pop((commit.cluster, commit.name), None)
    return found


def _deleting_s(run: Evidence) -> dict[str, float]:
    """When the last deletion of each DPU began."""
    found: dict[str, float] = {}
    for partition, steps in run.steps.items():
        phases: dict[str, str] = {}
        for step in steps if partition.topic == ZONES else ():
            for name, row in step.rows.get("dpus", ()):
                if row is not None and row.phase == DELETING != phases.get(name):
                    found[name] = run.appended_s(partition, step.record.offset)
                phases[name] = row.phase if row is not None else ""
    return found


def _faults_of_nodes(run: Evidence, state: ResourcesState, nodes: dict[tuple[str, str], FinalDpuNode]) -> Found:
    derivation = Derivation()
    derivation.update(state, state.objects.rows)
    in_service = {name for zones in run.zone_states for name, row in zones.dpus.rows.items() if row.phase == READY}
    for dpu, allocation in state.allocations.rows.items():
        name, node = object_id(dpu).name, nodes.get((allocation.cluster, object_id(dpu).name))
        if name not in in_service or object_id(dpu).source != LOCAL:
            continue
        facts = step_facts(state, derivation, name)
        if node is None or not node.is_ready:
            yield f"{dpu} is ready, and its Node in {allocation.cluster} is {node}"
        elif facts is not None and not facts.node_labels.items() <= node.labels.items():
            yield f"{dpu} is ready, and its Node has the labels {node.labels} instead of {facts.node_labels}"
        seen = state.seen.get(in_cluster(allocation.cluster, NODE, "", name).key)
        if node is not None and (seen is None or seen.is_ready != node.is_ready):
            yield f"the Node {node} is observed as {seen and seen.text}"


def check_clusters(run: Evidence) -> Found:
    """I33, at rest: a DPUCluster of Kamaji that is used is ready, and its control plane serves; nothing is observed of,
    or in, a cluster that is gone."""
    serving = {each.cluster: each.is_up for each in run.history.of(FinalControlPlane)}
    for partition, folded in run.folded.items():
        if partition.topic == RESOURCES:
            yield from _faults_of_clusters(partition, folded.state, serving)


def _faults_of_clusters(partition: Partition, state: ResourcesState, serving: dict[str, bool]) -> Found:
    used = [key for key in state.of_kind(LOCAL, DPU_CLUSTER) if state.serves(key)]
    for key in used:
        seen, spec = state.seen.get(key), read(DPUClusterSpec, state.objects.rows[key])
        if isinstance(spec, str) or spec.type != KAMAJI:
            continue
        if seen is None or not seen.is_ready or not serving.get(key):
            served = "serves" if serving.get(key) else "does not serve"
            yield f"{partition}: {key} is observed as {seen and seen.text}, and its control plane {served}"
    sources = {cluster_source(key) for key in used}
    for key in state.observed.rows:
        at = object_id(key)
        if at.source == LOCAL and at.kind == DPU_CLUSTER and key not in used:
            yield f"{partition}: {key} is observed, and does not exist"
        elif at.source.startswith(f"{LOCAL}.") and at.source not in sources:
            yield f"{partition}: {key} is observed in a DPU cluster that does not exist"
