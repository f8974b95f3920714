"""The operational conditions of a DPU: what makes each of them false, also after the DPU is in service."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.kubernetes.foreign.pods import UNREADY_POD
from projections.kubernetes.resources.statuses import stamped, status_of
from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.conditions.operational import (
    CHAINS,
    CRITICAL,
    INTERFACES,
    OTHERS,
    PROBLEMS,
    SUMMARY,
    operational_conditions,
)
from projections.resources.conditions.world import World
from projections.resources.service_gate import operational_wait
from projections.resources.state import ObjectId, ResourcesState
from projections.resources.step_facts import step_facts
from schemas.resources.dpf.dpu import NODE_PROBLEMS, OPERATIONAL_CONDITIONS
from schemas.resources.dpf.names import SERVICE_ID
from tests.support.derivations import key, row
from tests.support.kubernetes.custom import custom
from tests.unit.test_host_readiness import CLUSTER, DPU_A, Fleet, service
from tests.unit.test_host_readiness import CLUSTER_NODE as NODE_A

CHAIN, INTERFACE = key(kinds.DPU_SERVICE_CHAIN, "chain"), key(kinds.DPU_SERVICE_INTERFACE, "p0")
ALL = dict.fromkeys(OPERATIONAL_CONDITIONS, "True")


def pod(name: str) -> str:
    return ObjectId(cluster_source(CLUSTER), kinds.POD, "dpf", name).key


class InService(Fleet):
    """A DPU in service, whose node is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.derived.apply({CHAIN: row(), INTERFACE: row(), key(kinds.DPU_SERVICE, "hbn"): service(serviceID="hbn")})
        self.observe(DPU_A, ready=True, phase="Ready")
        self.observe(NODE_A, ready=True)

    @property
    def world(self) -> World:
        return World.of(self.derived.state, self.derived.derivation)

    def statuses(self) -> dict[str, str]:
        return {each.type: each.status for each in operational_conditions(DPU_A, self.world)}

    def message(self, aspect: str) -> str:
        return next(each.message for each in operational_conditions(DPU_A, self.world) if each.type == aspect)

    def wait(self, gate: str) -> str:
        self.derived.apply({key(kinds.DPU_FLAVOR, "f"): row({"serviceReadiness": {"gate": gate}})})
        facts = step_facts(self.derived.state, self.derived.derivation, "a-d0")
        assert facts is not None
        return operational_wait(self.world, facts)


def test_a_service_that_breaks_after_the_installation_makes_its_condition_false_until_it_runs_again() -> None:
    fleet = InService()
    assert fleet.statuses() == ALL
    fleet.observe(pod("x"), ready=False, node="a-d0", service="other", message="CrashLoopBackOff")
    assert fleet.statuses() == ALL | {OTHERS: "False", SUMMARY: "False"}
    assert fleet.message(OTHERS) == "Pod dpf/x of service other is not ready: CrashLoopBackOff"
    fleet.observe(pod("y"), ready=False, node="a-d0", service="hbn")
    assert fleet.statuses() == ALL | {OTHERS: "False", CRITICAL: "False", SUMMARY: "False"}
    fleet.observe(pod("x"))
    assert fleet.statuses() == ALL | {CRITICAL: "False", SUMMARY: "False"}
    fleet.observe(pod("y"), ready=False, node="elsewhere", service="hbn")
    assert fleet.statuses() == ALL, "the pod is on another DPU"
    assert fleet.derived.state.seen[DPU_A].phase == "Ready", "nothing is installed again"


def test_problems_of_the_node_are_named_and_reports_are_owed_only_by_an_installed_detector() -> None:
    fleet = InService()
    fleet.observe(NODE_A, ready=True, checks={"UplinkHealthy": "LinkDown", "OVSHealthy": ""})
    assert fleet.statuses() == ALL | {PROBLEMS: "False", SUMMARY: "False"}
    assert fleet.message(PROBLEMS) == "Node a-d0 has the problem UplinkHealthy: LinkDown"
    chart = {"helmChart": "oci://registry.example/charts/npd:v1"}
    config = row({"monitoring": {"nodeProblemDetector": chart}})
    fleet.derived.apply({key(kinds.DPF_OPERATOR_CONFIG, "c"): config})
    fleet.observe(NODE_A, ready=True, checks={"OVSHealthy": ""})
    assert fleet.statuses() == ALL | {PROBLEMS: "Unknown", SUMMARY: "Unknown"}
    fleet.observe(NODE_A, ready=True, checks=dict.fromkeys(NODE_PROBLEMS, ""))
    assert fleet.statuses() == ALL


@pytest.mark.parametrize(("part", "aspect"), [(CHAIN, CHAINS), (INTERFACE, INTERFACES)])
def test_a_chain_that_is_not_ready_concerns_the_dpus_that_lack_it(part: str, aspect: str) -> None:
    fleet = InService()
    fleet.observe(part, ready=False, applied=1, selected=2, lacking=["b-d1"])
    assert fleet.statuses() == ALL
    fleet.observe(part, ready=False, applied=0, selected=2, lacking=["a-d0", "b-d1"])
    assert fleet.statuses() == ALL | {aspect: "False", SUMMARY: "False"}
    fleet.observe(part, ready=False, applied=0, selected=200, lacking=["b-d1"])
    assert fleet.statuses() == ALL | {aspect: "Unknown", SUMMARY: "Unknown"}, "not every DPU is named"
    fleet.observe(part, ready=True, applied=2, selected=2)
    assert fleet.statuses() == ALL


def test_a_dpu_in_service_that_has_lost_its_node_is_not_operational() -> None:
    fleet = InService()
    fleet.observe(NODE_A)
    assert set(fleet.statuses().values()) == {"Unknown"}, "no node of the cluster is observed"
    fleet.observe(ObjectId(cluster_source(CLUSTER), kinds.NODE, "", "other").key, ready=True)
    assert set(fleet.statuses().values()) == {"False"}
    fleet.observe(DPU_A, ready=False, phase="OS Installing")
    assert set(fleet.statuses().values()) == {"Unknown"}
    assert operational_conditions(key(kinds.DPU, "b-d1"), fleet.world) == (), "it has no DPU cluster"


def test_the_gate_waits_for_every_operational_condition() -> None:
    fleet = InService()
    fleet.observe(NODE_A, ready=True, checks={"UplinkHealthy": "LinkDown"})
    assert fleet.wait("DPUServiceCriticalPodsReady") == ""
    expected = "condition NodeProblemsReady: Node a-d0 has the problem UplinkHealthy: LinkDown"
    assert fleet.wait("OperationalReady") == expected
    fleet.observe(NODE_A, ready=True)
    assert fleet.wait("OperationalReady") == ""


def test_the_status_keeps_the_time_of_a_transition() -> None:
    fleet = InService()
    status = status_of(DPU_A, row(), fleet.world, (), 1)
    first = stamped(status, {}, 1_000)
    assert {each["status"] for each in first["operationalConditions"]} == {"True"}
    fleet.observe(pod("y"), ready=False, node="a-d0", service="hbn")
    later = stamped(status_of(DPU_A, row(), fleet.world, (), 1), first, 9_000)
    times = {each["type"]: each["lastTransitionTime"] for each in later["operationalConditions"]}
    changed = {name for name, time in times.items() if time != times[OTHERS]}
    assert changed == {CRITICAL, SUMMARY}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def test_only_unready_pods_are_observed() -> None:
    def seen(status: dict[str, Any], node: str = "a-d0", **about: Any) -> Any:
        item = custom("x", {"nodeName": node} if node else {}, labels={SERVICE_ID: "hbn"}, status=status, **about)
        return UNREADY_POD.observe(item)

    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    assert seen(waiting) == {"ready": False, "message": "ImagePullBackOff", "node": "a-d0", "service": "hbn"}
    assert seen({"reason": "Evicted", "phase": "Failed"})["message"] == "Evicted"
    assert [seen(ready), seen({"phase": "Succeeded"}), seen({}, deleted_s=1), seen({}, node="")] == [None] * 4


def test_a_node_shows_what_the_detector_reports() -> None:
    found = [("OVSHealthy", "False", "Fine"), ("MTUConfigured", "True", "Wrong"), ("Ready", "True", "KubeletReady")]
    status = {"conditions": [{"type": kind, "status": value, "reason": why} for kind, value, why in found]}
    observed = CLUSTER_NODE.observe(custom("n", namespace="", status=status))
    assert observed is not None and observed["checks"] == {"MTUConfigured": "Wrong", "OVSHealthy": ""}


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "n1", "n2"])), max_size=12))
def test_unready_pods_are_indexed_by_node_in_whatever_order_they_change(steps: list[tuple[str, str]]) -> None:
    fleet = Fleet()
    for name, node in steps:
        fleet.observe(pod(name), **({"ready": False, "node": node} if node else {}))
    state: ResourcesState = fleet.derived.state
    before = {node: set(pods) for node, pods in state.unready_pods.items()}
    last = dict(steps)
    expected: dict[str, set[str]] = {}
    for name, node in last.items():
        if node:
            at = ObjectId(cluster_source(CLUSTER), kinds.NODE, "", node).key
            expected.setdefault(at, set()).add(pod(name))
    assert before == expected
    state.rederive()
    assert {node: set(pods) for node, pods in state.unready_pods.items()} == expected
