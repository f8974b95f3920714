"""Which Nodes of a cluster keep new workload away until their DPUs are ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from commands.kubernetes.resource_facts import ResourceFacts, has_devices, read_host
from projections.kubernetes.ready_taint import TAINT, patch_of_taint
from projections.resources.clusters import in_cluster
from projections.resources.host_readiness import READY_MARK, HostReadiness, has_taint
from projections.resources.kinds import (
    DPF_OPERATOR_CONFIG,
    DPU,
    DPU_CLUSTER,
    DPU_DEVICE,
    DPU_NODE,
    DPU_SERVICE,
    DPU_SET,
    NODE,
)
from projections.resources.rollouts.rows import Allocation
from projections.resources.state import Resource
from schemas.kubernetes.objects import Node
from schemas.resources.dpf.names import CRITICAL_SERVICE
from tests.support.derivations import Derived, device, dpu_set, key, row

CLUSTER = key(DPU_CLUSTER, "c1")
HOST = key(NODE, "a")
DPU_A = key(DPU, "a-d0")
CLUSTER_NODE = in_cluster(CLUSTER, NODE, "", "a-d0").key


class Fleet:
    """Two hosts with a DPU each, of which only `a` is a Node of the cluster."""

    def __init__(self) -> None:
        self.readiness = HostReadiness()
        template = {"bfb": {"name": "i"}, "dpuFlavor": "f", "cluster": {"name": "c1", "nodeLabels": {"rev": "1"}}}
        self.derived = Derived(
            {
                CLUSTER: row(),
                HOST: node(),
                key(DPU_NODE, "a"): row(is_external=True),
                key(DPU_NODE, "b"): row(is_external=True),
                key(DPU_DEVICE, "d0"): device("a"),
                key(DPU_DEVICE, "d1"): device("b", serial="t"),
                key(DPU_SET, "all"): row({"dpuTemplate": {"spec": template}}),
            }
        )
        self.derived.state.allocations.put(DPU_A, Allocation(CLUSTER, 1))
        self.derived.derivation.update(self.derived.state, [key(DPU_SET, "all"), DPU_A])
        self.update(None, None)

    def update(self, wanted: list[str] | None, stated: list[str] | None) -> list[str]:
        return [*self.readiness.update(self.derived.state, self.derived.derivation, wanted, stated)]

    def apply(self, **rows: Resource | None) -> list[str]:
        """Apply objects by kind. Returns the Nodes to compare."""
        kinds = {"service": key(DPU_SERVICE, "s"), "config": key(DPF_OPERATOR_CONFIG, "c"), "node": HOST}
        kinds |= {"set": key(DPU_SET, "all")}
        found = {kinds[name]: each for name, each in rows.items()}
        wanted = [each for each in self.derived.apply(found) if each.split("/")[1] == DPU]
        return self.update(wanted, [*found])

    def observe(self, name: str, **fields: Any) -> list[str]:
        self.derived.observe(name, **fields)
        return self.update([], [name])

    def wants(self, name: str = HOST) -> bool | None:
        return self.readiness.shall_have_taint(self.derived.state, self.derived.derivation, name)


def node(*, labels: Mapping[str, str] | None = None, is_marked: bool = False) -> Resource:
    return row(labels=labels, annotations={READY_MARK: "true"} if is_marked else {}, is_external=True)


def service(selector: Mapping[str, Any] | None = None, **fields: Any) -> Resource:
    spec = {"serviceDaemonSet": {"nodeSelector": selector}} if selector else {}
    return row(spec | fields, labels={CRITICAL_SERVICE: ""})


def test_a_node_has_the_taint_while_a_critical_service_lacks_its_dpu() -> None:
    fleet = Fleet()
    assert fleet.wants() is False, "no service is critical"
    assert fleet.apply(service=service()) == [HOST, key(NODE, "b")]
    assert fleet.wants() is True
    assert fleet.wants(key(NODE, "b")) is None, "the cluster has no such Node"
    assert fleet.observe(DPU_A, ready=True, phase="Ready") == [HOST] and fleet.wants() is False
    assert fleet.observe(CLUSTER_NODE, ready=False) == [HOST] and fleet.wants() is True
    assert fleet.observe(CLUSTER_NODE, ready=True) == [HOST] and fleet.wants() is False
    assert fleet.observe(DPU_A, ready=False, phase="Rebooting") == [HOST] and fleet.wants() is True
    assert fleet.apply(service=None) == [HOST, key(NODE, "b")] and fleet.wants() is False


def term(label: str, *values: str) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": label, "operator": "In", "values": [*values]}]}]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (service(term("rev", "1")), True),
        (service(term("rev", "2")), False),
        (service(dpuClusterSelector={"matchLabels": {"other": "1"}}), False),
        (service(deployInCluster=True), False),
        (row(labels={}), False),
    ],
)
def test_only_critical_services_count_that_the_dpu_must_run(found: Resource, expected: bool) -> None:
    fleet = Fleet()
    fleet.apply(service=found)
    assert fleet.wants() is expected


def test_a_node_of_the_control_plane_or_with_the_feature_off_stays_as_it_is() -> None:
    fleet = Fleet()
    fleet.apply(service=service(), node=node(labels={"node-role.kubernetes.io/control-plane": ""}))
    assert fleet.wants() is None
    fleet.apply(node=node(), config=row({"dpuServiceController": {"disableDPUReadyTaints": True}}))
    assert fleet.wants() is None
    assert HOST in fleet.apply(config=row({})) and fleet.wants() is True


def test_of_a_host_without_dpus_only_a_taint_of_the_plane_is_removed() -> None:
    fleet = Fleet()
    assert HOST in fleet.apply(service=service(), set=dpu_set(dpuNodeSelector={"matchLabels": {"none": ""}}))
    assert fleet.wants() is None, "somebody registers Nodes with it"
    assert fleet.apply(node=node(is_marked=True)) == [HOST] and fleet.wants() is False


def test_a_patch_changes_only_this_taint() -> None:
    other = {"key": "example.org/other", "effect": "NoSchedule"}
    before = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [other]}}
    patch = patch_of_taint(before, is_wanted=True)
    metadata = {"annotations": {READY_MARK: "true"}, "resourceVersion": "7"}
    assert patch == {"metadata": metadata, "spec": {"taints": [other, TAINT]}}
    after = {"metadata": metadata, "spec": patch["spec"]}
    assert patch_of_taint(after, is_wanted=True) is None and patch_of_taint(before, is_wanted=False) is None
    lifted = patch_of_taint(after, is_wanted=False)
    assert lifted is not None and lifted["spec"]["taints"] == [other]
    assert lifted["metadata"]["annotations"] == {READY_MARK: None}
    theirs = {"metadata": {}, "spec": {"taints": [TAINT]}}
    assert patch_of_taint(theirs, is_wanted=True) is None, "somebody has set it already"
    assert patch_of_taint(theirs, is_wanted=False) is not None


def stated(**fields: Any) -> ResourceFacts:
    metadata = {"name": "a", "uid": "u", "labels": {"feature.node.kubernetes.io/dpu-enabled": "true"}}
    found = read_host("east", msgspec.convert({"metadata": metadata, **fields}, Node))
    assert not isinstance(found, str), found
    return found


def test_a_node_is_stated_with_the_taint_and_no_other() -> None:
    others = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    bare = stated()
    assert bare.spec == "{}" and stated(spec={"taints": others}).is_same(bare)
    tainted = stated(spec={"taints": [*others, TAINT]})
    assert not tainted.is_same(bare) and has_taint(row(msgspec.json.decode(tainted.spec)))
    assert not has_taint(row(msgspec.json.decode(bare.spec)))
    marked = {"name": "a", "uid": "u", "annotations": {READY_MARK: "true"}}
    assert has_devices(msgspec.convert({"metadata": marked}, Node)), "its taint is still to be removed"
