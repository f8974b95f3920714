"""The checkers of DPU clusters find a join without a ready node, a Node or an observation that is left, a cluster that
is ready without its control plane, and a control plane that is deleted while it is used.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.rollouts.rows import Allocation
from projections.resources.state import LOCAL, ObjectId, Resource, ResourcesChange
from projections.zones.dpus.phases import CLUSTER_CONFIG, DELETING, READY, SERVICE_READINESS
from projections.zones.rows import Dpu
from schemas import events as e
from tests.simulation.checkers import Evidence, dpu_clusters
from tests.simulation.history import (
    BmcCalled,
    ControlPlaneDeleted,
    DpuNodeCommitted,
    FinalControlPlane,
    FinalDpuNode,
    HistoryEntry,
)
from tests.simulation.resource_editor import dpu_key
from tests.support.written_run import WrittenRun
from tests.support.written_steps import WrittenSteps

RESOURCES_0 = Partition(RESOURCES, 0)
CLUSTER = ObjectId(LOCAL, kinds.DPU_CLUSTER, "dpf", "cluster").key
NAME = "h-d"
READY_NODE = FinalDpuNode(CLUSTER, NAME, True, {"kubernetes.io/hostname": NAME})


def dpu(phase: str, attempt: int = 0) -> Dpu:
    return Dpu("z", 0, "h", "", f"simulated:{NAME}", phase, attempt, 1, 1, 1)


def joined(*happened: HistoryEntry) -> list[str]:
    """The faults of a DPU that joins from second 1 on, and succeeds at second 2 with attempt 5."""
    log = WrittenRun()
    succeeded = e.StepSucceeded(log.stated(), "z", NAME, CLUSTER_CONFIG, 5, {})
    steps = WrittenSteps(BmcCalled("another", 1, "install"), *happened)
    steps.add(None, dpus={NAME: dpu(CLUSTER_CONFIG, 4)})
    steps.add(succeeded, dpus={NAME: dpu(SERVICE_READINESS, 5)})
    return [*dpu_clusters.check_joins(steps.evidence())]


def node(at_s: float, *, is_ready: bool, is_present: bool = True) -> DpuNodeCommitted:
    return DpuNodeCommitted(at_s, CLUSTER, NAME, is_present, is_ready)


@pytest.mark.parametrize(
    ("happened", "is_fault"),
    [
        ((), True),
        ((node(0.5, is_ready=True),), False),
        ((node(1.5, is_ready=True),), False),
        ((node(0.5, is_ready=True), node(0.8, is_ready=False)), True),
        ((node(0.5, is_ready=True), node(1.5, is_ready=False)), False),
        ((node(2.5, is_ready=True),), True),
        ((BmcCalled(NAME, 5, "join-cluster"),), False),
        ((BmcCalled(NAME, 4, "join-cluster"),), True),
        ((BmcCalled(NAME, 5, "check-services"),), True),
    ],
)
def test_a_join_is_a_fault_if_the_node_was_not_ready_meanwhile(
    happened: tuple[HistoryEntry, ...], is_fault: bool
) -> None:
    assert bool(joined(*happened)) == is_fault


def deleted_at(position: int) -> list[str]:
    """The faults of a control plane that is deleted at a position of a log in which its DPUCluster is applied at 1,
    deleted at 2, and loses its last DPU at 3."""
    row = Resource("u", 1, 1, 1, 1, {}, {}, "{}")
    steps = WrittenSteps(ControlPlaneDeleted(9.0, CLUSTER, position))
    steps.add(None, RESOURCES_0, objects={CLUSTER: row}, allocations={"dpu": Allocation(CLUSTER, 1)})
    leaving = Resource("u", 1, 1, 1, 1, {}, {}, "{}", deleted_ms=2)
    steps.add(None, RESOURCES_0, objects={CLUSTER: leaving})
    steps.add(None, RESOURCES_0, allocations={"dpu": None})
    steps.add(None, RESOURCES_0, objects={CLUSTER: None})
    return [*dpu_clusters.check_control_planes(steps.evidence())]


def test_a_control_plane_that_is_deleted_while_it_is_used_is_a_fault() -> None:
    assert [bool(deleted_at(position)) for position in range(5)] == [False, True, True, False, False]


class ClusterLog:
    """A log with a DPUCluster of Kamaji that is observed as ready, and a DPU in service that is allocated to it."""

    def __init__(self) -> None:
        self.run = WrittenRun()
        optional: dict[str, Any] = {key: [] for key in ("uids", "generations", "created_ms", "deleted_ms")}
        optional |= {key: [] for key in ("labels", "annotations", "expected_generations")}
        spec = json.dumps({"type": "kamaji"})
        self.run.write(
            RESOURCES_0,
            e.ResourcesApplied(
                self.run.said(), LOCAL, [kinds.DPU_CLUSTER], ["dpf"], ["cluster"], specs=[spec], **optional
            ),
        )
        self.observe(LOCAL, kinds.DPU_CLUSTER, "dpf", "cluster", ready=True)
        self.observe(cluster_source(CLUSTER), kinds.NODE, "", NAME, ready=True)

    def observe(self, source: str, kind: str, namespace: str, name: str, **fields: Any) -> None:
        text = json.dumps(fields) if fields else ""
        self.run.write(
            RESOURCES_0, e.ResourcesObserved(self.run.said(), source, [kind], [namespace], [name], [], [text])
        )

    def evidence(self, *at_rest: HistoryEntry, phase: str = READY) -> Evidence:
        for each in at_rest:
            self.run.history.add(each)
        run = self.run.evidence()
        allocations = {dpu_key(NAME): Allocation(CLUSTER, 1)}
        run.folded[RESOURCES_0].state.roll_out(ResourcesChange(allocations=allocations))
        if phase:
            run.zone_states[0].dpus.put(NAME, dpu(phase))
        return run


def test_a_ready_dpu_has_a_ready_node_that_is_observed() -> None:
    assert not [*dpu_clusters.check_nodes(ClusterLog().evidence(READY_NODE))]
    assert "is ready, and its Node in" in next(dpu_clusters.check_nodes(ClusterLog().evidence()))
    unready = FinalDpuNode(CLUSTER, NAME, False, {})
    assert "is ready, and its Node in" in next(dpu_clusters.check_nodes(ClusterLog().evidence(unready)))
    assert not [*dpu_clusters.check_nodes(ClusterLog().evidence(phase=CLUSTER_CONFIG))]
    log = ClusterLog()
    log.observe(cluster_source(CLUSTER), kinds.NODE, "", NAME)
    assert [*dpu_clusters.check_nodes(log.evidence(READY_NODE))] == [f"the Node {READY_NODE} is observed as None"]


def test_a_node_of_a_dpu_that_does_not_exist_is_a_fault_unless_it_joined_during_the_deletion() -> None:
    log = ClusterLog()
    assert [*dpu_clusters.check_nodes(log.evidence(node(1.0, is_ready=True), READY_NODE, phase=""))] == [
        f"{CLUSTER} has a Node of {NAME}, which does not exist"
    ]
    for joined_s, is_fault in ((1.0, True), (3.0, False)):
        steps = WrittenSteps(node(joined_s, is_ready=True), READY_NODE)
        steps.add(None, dpus={NAME: dpu(READY)}).add(None, dpus={NAME: dpu(DELETING)}).add(None, dpus={NAME: None})
        assert bool([*dpu_clusters.check_nodes(steps.evidence())]) == is_fault


def test_a_used_cluster_is_ready_and_its_control_plane_serves() -> None:
    assert not [*dpu_clusters.check_clusters(ClusterLog().evidence(FinalControlPlane(CLUSTER, True)))]
    for entries in ((), (FinalControlPlane(CLUSTER, False),)):
        (found,) = dpu_clusters.check_clusters(ClusterLog().evidence(*entries))
        assert found.endswith("and its control plane does not serve")
    log = ClusterLog()
    log.observe(LOCAL, kinds.DPU_CLUSTER, "dpf", "cluster", ready=False)
    (found,) = dpu_clusters.check_clusters(log.evidence(FinalControlPlane(CLUSTER, True)))
    assert found.endswith("and its control plane serves")


def test_what_is_observed_of_a_cluster_that_is_gone_is_a_fault() -> None:
    log = ClusterLog()
    log.run.write(RESOURCES_0, e.ResourcesDeleted(log.run.said(), LOCAL, [kinds.DPU_CLUSTER], ["dpf"], ["cluster"], []))
    found = [*dpu_clusters.check_clusters(log.run.evidence())]
    assert [each.rpartition(" is observed")[2] for each in found] == [
        ", and does not exist",
        " in a DPU cluster that does not exist",
    ]
