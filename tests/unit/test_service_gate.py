"""The services that a DPU waits for before it is put into service, and what is said of those that do not run."""

from __future__ import annotations

from typing import Any

import pytest

from projections.kubernetes.dpu_node import unready_services
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.kinds import DPU_CLUSTER, DPU_FLAVOR, DPU_FLAVOR_TEMPLATE, DPU_SERVICE
from projections.resources.service_gate import awaited_services
from projections.resources.state import Resource
from projections.resources.step_facts import step_facts
from schemas.resources.dpf.names import CRITICAL_SERVICE, SERVICE_ID
from tests.support.derivations import key, row
from tests.unit.test_host_readiness import DPU_A, Fleet

GATE = {"serviceReadiness": {"gate": "DPUServiceCriticalPodsReady"}}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODE: dict[str, Any] = {"metadata": {"name": "n", "labels": {"rev": "1"}}}


def service(name: str, *, is_critical: bool = True, **spec: Any) -> dict[str, Resource]:
    labels = {CRITICAL_SERVICE: ""} if is_critical else {}
    return {key(DPU_SERVICE, name): row({"serviceID": f"id-{name}"} | spec, labels=labels)}


def awaited(**rows: Resource) -> frozenset[str] | None:
    """What the DPU of a host waits for, with the flavor `f` and services."""
    fleet = Fleet()
    services = {
        **service("hbn"),
        **service("other", is_critical=False),
        **service("elsewhere", serviceDaemonSet={"nodeSelector": SELECTOR}),
        **service("host", deployInCluster=True),
        key(DPU_SERVICE, "nameless"): row(labels={CRITICAL_SERVICE: ""}),
    }
    fleet.derived.apply({**services, **{FLAVORS[name]: each for name, each in rows.items()}})
    state, derivation = fleet.derived.state, fleet.derived.derivation
    facts = step_facts(state, derivation, "a-d0")
    assert facts is not None
    return awaited_services(World.of(state, derivation), facts)


FLAVORS = {"flavor": key(DPU_FLAVOR, "f"), "template": key(DPU_FLAVOR_TEMPLATE, "t"), "cluster": key(DPU_CLUSTER, "c1")}
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rev", "operator": "In", "values": ["2"]}]}]}


@pytest.mark.parametrize("spec", [{}, {"serviceReadiness": {"gate": "OperationalReady"}}, {"serviceReadiness": {}}])
def test_without_the_gate_a_dpu_waits_for_every_service(spec: dict[str, Any]) -> None:
    assert awaited(flavor=row(spec)) is None
    assert awaited() is None, "the flavor does not exist"


def test_the_gate_waits_for_the_critical_services_that_must_run_on_the_dpu() -> None:
    assert awaited(flavor=row(GATE)) == frozenset(("id-hbn",))


def daemon_set(service: str, selector: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"metadata": {"labels": {SERVICE_ID: service}}, "spec": {"nodeSelector": selector or {}}}
    return {"metadata": {"uid": service}, "spec": {"template": template}}


def pod(service: str, status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    found = {"name": f"{service}-x", "labels": {SERVICE_ID: service}, "ownerReferences": [{"uid": service}]}
    return {"metadata": found | metadata, "status": status}


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {}}, {"state": {"waiting": {"reason": reason}}}]}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([], "a pod of service a"),
        ([pod("a", {})], "pod a-x of service a"),
        ([pod("a", waiting("CrashLoopBackOff"))], "pod a-x of service a (CrashLoopBackOff)"),
        ([pod("a", {"reason": "Evicted"})], "pod a-x of service a (Evicted)"),
        ([pod("a", READY, deletionTimestamp="now")], "a pod of service a"),
    ],
)
@pytest.mark.parametrize("ids", [None, frozenset("a")])
def test_the_pod_that_is_missing_is_named(ids: frozenset[str] | None, pods: list[dict[str, Any]], text: str) -> None:
    found = unready_services(NODE, [daemon_set("a")], pods, ids)
    assert [each.text for each in found] == [text]
    assert unready_services(NODE, [daemon_set("a")], [pod("a", READY)], ids) == []


def test_only_awaited_services_count_and_they_need_no_daemon_set() -> None:
    sets = [daemon_set("a"), daemon_set("b", {"rev": "2"})]
    assert [each.service for each in unready_services(NODE, sets, [], None)] == ["a"]
    assert [each.service for each in unready_services(NODE, sets, [], frozenset("bc"))] == ["b", "c"]
    assert unready_services(NODE, sets, [pod("c", READY)], frozenset("c")) == []
    both = [pod("c", READY), pod("c", waiting("ErrImagePull"), name="c-y")]
    assert [each.text for each in unready_services(NODE, sets, both, frozenset("c"))] == [
        "pod c-y of service c (ErrImagePull)"
    ]
    assert unready_services(NODE, sets, [], frozenset()) == []


def test_the_condition_of_the_dpu_names_the_pod() -> None:
    fleet = Fleet()
    fleet.observe(DPU_A, ready=False, phase="Service Readiness", message="waits for pod hbn-x of service hbn")
    world = World.of(fleet.derived.state, fleet.derived.derivation)
    found = {each.type: each.message for each in conditions_of(DPU_A, world)}
    assert found["ServiceReadiness"].endswith("waits for pod hbn-x of service hbn")
    fleet.observe(DPU_A, ready=True, phase="Ready")
    assert "ServiceReadiness" not in {each.type for each in conditions_of(DPU_A, world)}
