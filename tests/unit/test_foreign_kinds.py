"""What is observed of objects that other programs own: the fields that folds use, and nothing that always changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from projections.kubernetes.foreign.address_pools import POOLS
from projections.kubernetes.foreign.applications import APPLICATION
from projections.kubernetes.foreign.control_planes import TENANT_CONTROL_PLANE
from projections.kubernetes.foreign.daemon_sets import DAEMON_SET
from projections.kubernetes.foreign.kind import ForeignKind
from projections.kubernetes.foreign.kinds import IN_DPU_CLUSTER, IN_SOURCE_CLUSTER
from projections.kubernetes.foreign.networks import NETWORK
from projections.kubernetes.foreign.node_maintenances import NODE_MAINTENANCE
from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.kubernetes.foreign.pods import UNREADY_POD
from projections.kubernetes.foreign.services import CLUSTER_SERVICE
from projections.kubernetes.foreign.sets import SETS
from schemas.kubernetes.objects import Custom
from tests.support.kubernetes.custom import custom

READY = {"type": "Ready", "status": "True", "reason": "Success", "message": "all good"}


def seen(kind: ForeignKind, *, spec: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The observation of an object, without empty fields."""
    found = kind.observe(custom("a", spec, **fields))
    assert found is not None
    return {name: value for name, value in found.items() if value or name == "ready"}


def test_an_application_is_ready_once_it_is_synced_and_healthy() -> None:
    status = {"health": {"status": "Healthy"}, "sync": {"status": "Synced", "revision": "1.2"}}
    expected = {"ready": True, "phase": "Healthy", "health": "Healthy", "sync": "Synced", "revision": "1.2"}
    assert seen(APPLICATION, status=status) == expected
    assert seen(APPLICATION, status={**status, "reconciledAt": "now"}) == expected


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "its sync status is not known"),
        ({"sync": {"status": "OutOfSync"}}, "its sync status is OutOfSync"),
        ({"sync": {"status": "Synced"}}, "its health is not known"),
        ({"sync": {"status": "Synced"}, "health": {"status": "Progressing"}}, "its health is Progressing"),
        ({"sync": {"status": "Synced"}, "health": {"status": "Degraded", "message": "too\nlate"}}, "too late"),
        ({"operationState": {"phase": "Failed", "message": "chart not found"}}, "chart not found"),
        ({"operationState": {"phase": "Running", "message": "waiting"}}, "its sync status is not known"),
        ({"conditions": [{"type": "ComparisonError", "message": "no such repository"}]}, "no such repository"),
    ],
)
def test_an_application_says_why_it_is_not_ready(status: Mapping[str, Any], message: str) -> None:
    found = seen(APPLICATION, status=status)
    assert (found["ready"], found["message"]) == (False, message)


def test_an_application_names_its_first_unhealthy_object() -> None:
    parts = [
        {"kind": "ConfigMap", "namespace": "dpf", "name": "settings"},
        {"kind": "DaemonSet", "namespace": "dpf", "name": "hbn", "health": {"status": "Degraded", "message": "0 of 3"}},
        {"kind": "Pod", "namespace": "dpf", "name": "later", "health": {"status": "Missing"}},
    ]
    status = {"health": {"status": "Degraded"}, "sync": {"status": "Synced"}, "resources": parts}
    found = seen(APPLICATION, status=status)
    assert (found["message"], found["resource"]) == ("DaemonSet dpf/hbn: 0 of 3", "DaemonSet dpf/hbn")
    found = seen(APPLICATION, status={**status, "resources": parts[2:]})
    assert found["message"] == "Pod dpf/later: it is Missing"


def test_a_control_plane_is_ready_when_kamaji_says_so() -> None:
    version = {"status": "Provisioning", "version": "v1.30.2"}
    status = {"kubernetesResources": {"version": version}, "controlPlaneEndpoint": "10.0.0.1:6443"}
    found = seen(TENANT_CONTROL_PLANE, status=status)
    assert (found["ready"], found["phase"], found["message"]) == (False, "Provisioning", "Kamaji reports Provisioning")
    status["kubernetesResources"] = {"version": {**version, "status": "Ready"}}
    status |= {"kubeconfig": {"admin": {"secretName": "dpus-admin-kubeconfig"}}}
    assert seen(TENANT_CONTROL_PLANE, status=status) == {
        "ready": True,
        "phase": "Ready",
        "version": "v1.30.2",
        "endpoint": "10.0.0.1:6443",
        "kubeconfig": "dpus-admin-kubeconfig",
    }
    assert seen(TENANT_CONTROL_PLANE)["message"] == "Kamaji reports nothing yet"


def test_a_maintenance_is_observed_without_its_progress() -> None:
    spec = {"nodeName": "host-1", "requestorID": "dpuplane", "additionalRequestors": ["b", "a"]}
    status = {"conditions": [{**READY, "status": "False", "reason": "Draining", "message": "2 pods left"}]}
    found = seen(NODE_MAINTENANCE, spec=spec, status=status)
    assert found == {
        "ready": False,
        "phase": "Draining",
        "message": "2 pods left",
        "node": "host-1",
        "requestor": "dpuplane",
        "additional": ["a", "b"],
    }
    assert seen(NODE_MAINTENANCE, spec=spec, status={**status, "drain": {"drainProgress": 50}}) == found
    failed = {"type": "Failed", "status": "True", "reason": "FailedDrain", "message": "a pod cannot be evicted"}
    assert seen(NODE_MAINTENANCE, status={"conditions": [failed]})["message"] == "a pod cannot be evicted"
    assert seen(NODE_MAINTENANCE, status={"conditions": [READY]}, deleted_s=1_700_000_000)["deleting"] is True


def test_a_pool_is_ready_once_a_node_has_a_part_of_it() -> None:
    for kind in POOLS:
        assert seen(kind) == {"ready": False, "message": "no node has a part of it yet"}
        status = {"allocations": [{"nodeName": "a"}, {"nodeName": "b"}]}
        assert seen(kind, status=status) == {"ready": True, "allocations": 2}


def test_the_heartbeat_of_a_node_is_no_change() -> None:
    fields: dict[str, Any] = {
        "spec": {"unschedulable": True},
        "labels": {"b": "2", "a": "1"},
        "annotations": {"provisioning.dpu.nvidia.com/x": "y", "node.alpha.kubernetes.io/ttl": "0"},
    }
    address = {"type": "InternalIP", "address": "10.1.1.1"}
    status = {
        "conditions": [READY],
        "addresses": [address, {"type": "ExternalDNS", "address": "a.example.org"}],
        "nodeInfo": {"kubeletVersion": "v1.30.2", "bootID": "b"},
    }
    found = seen(CLUSTER_NODE, status=status, **fields)
    assert found == {
        "ready": True,
        "labels": {"a": "1", "b": "2"},
        "annotations": {"provisioning.dpu.nvidia.com/x": "y"},
        "addresses": [address],
        "version": "v1.30.2",
        "cordoned": True,
    }
    beat = {**status, "conditions": [{**READY, "lastHeartbeatTime": "later"}], "images": [{"names": ["x"]}]}
    assert seen(CLUSTER_NODE, status=beat, **fields) == found
    assert seen(CLUSTER_NODE)["message"] == "its kubelet reports nothing yet"


def test_a_daemon_set_is_ready_once_its_newest_pods_are() -> None:
    status = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 2, "numberAvailable": 3, "observedGeneration": 2}
    found = seen(DAEMON_SET, status=status, generation=2)
    assert (found["ready"], found["message"]) == (False, "2 of 3 pods are ready and up to date")
    assert seen(DAEMON_SET, status={**status, "updatedNumberScheduled": 3}, generation=2)["ready"] is True
    assert seen(DAEMON_SET, status={**status, "updatedNumberScheduled": 3}, generation=3)["ready"] is False


def test_a_set_is_ready_once_its_controller_has_seen_its_newest_spec() -> None:
    for kind in SETS:
        assert seen(kind)["message"] == "its DPU cluster reports nothing yet"
        status = {"conditions": [READY], "observedGeneration": 1}
        assert seen(kind, status=status, generation=1)["ready"] is True
        assert seen(kind, status=status, generation=2)["ready"] is False


def test_a_service_shows_the_port_of_the_api_server() -> None:
    ports = [{"name": "konnectivity", "nodePort": 30001}, {"name": "kube-apiserver", "nodePort": 30002}]
    found = seen(CLUSTER_SERVICE, spec={"ports": ports})
    assert found == {"ready": True, "nodePort": 30002, "ports": {"konnectivity": 30001, "kube-apiserver": 30002}}
    assert seen(CLUSTER_SERVICE, spec={"ports": ports[:1]})["nodePort"] == 30001
    assert seen(CLUSTER_SERVICE) == {"ready": False, "message": "it has no port of the nodes yet"}


def test_a_network_is_ready_while_it_exists() -> None:
    assert seen(NETWORK) == {"ready": True}
    assert seen(NETWORK, deleted_s=1_700_000_000)["ready"] is False


@pytest.mark.parametrize("kind", [*IN_SOURCE_CLUSTER, *IN_DPU_CLUSTER], ids=lambda kind: kind.name)
def test_no_form_of_an_object_is_an_error(kind: ForeignKind) -> None:
    assert kind.path.startswith(("/api/v1/", "/apis/"))
    metadata = custom("a").metadata
    for text in (b"null", b"[]", b'"x"', b"{}", b'{"conditions":1,"ports":{},"health":[]}'):
        found = kind.observe(Custom(metadata, msgspec.Raw(text), msgspec.Raw(text)))
        if kind is UNREADY_POD:
            assert found is None, "it has no node"
            continue
        assert found is not None
        assert isinstance(found["ready"], bool)
