"""The control planes of DPU clusters: what Kamaji and keepalived get, in which order, and the phases of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from projections.resources import kinds
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.state import Resource
from projections.resources.views import phase
from projections.resources.wanted import Wanted
from tests.support.derivations import Derived, key, row

C = key(kinds.DPU_CLUSTER, "c")
CONFIG = key(kinds.DPF_OPERATOR_CONFIG, "config")
SERVICE, TENANT = key(kinds.SERVICE, "c"), key(kinds.TENANT_CONTROL_PLANE, "c")
KEEPALIVED = {"vip": "10.0.0.9", "virtualRouterID": 7, "interface": "eth0", "nodeSelector": {"zone": "a"}}


def kamaji(**changes: Any) -> Resource:
    return row({"type": "kamaji", "clusterEndpoint": {"keepalived": KEEPALIVED}} | changes)


def wanted(derived: Derived, kind: str) -> list[Wanted]:
    return [each for each in derived.derivation.in_clusters.claims.winners.values() if each.at.kind == kind]


def one(derived: Derived, kind: str) -> Wanted:
    (found,) = wanted(derived, kind)
    return found


def conditions(derived: Derived) -> dict[str, Condition]:
    return {each.type: each for each in conditions_of(C, World.of(derived.state, derived.derivation))}


def phase_of(derived: Derived) -> str:
    world = World.of(derived.state, derived.derivation)
    return phase(C, derived.state.objects.rows[C], conditions_of(C, world), world)


def test_a_control_plane_waits_for_its_port_and_then_keeps_the_service() -> None:
    derived = Derived({C: kamaji(version="v1.33.1")})
    service = one(derived, kinds.SERVICE)
    assert (service.spec["type"], service.spec["selector"]) == ("NodePort", {"kamaji.clastix.io/name": "c"})
    assert one(derived, kinds.TENANT_CONTROL_PLANE).is_held
    assert wanted(derived, kinds.DAEMON_SET) == []
    assert conditions(derived)["Created"].message == "Service dpf/c has no port on the nodes yet"
    assert phase_of(derived) == "Pending"

    changed = derived.observe(SERVICE, ready=True, nodePort=30_001)
    assert TENANT in changed
    tenant = one(derived, kinds.TENANT_CONTROL_PLANE)
    assert not tenant.is_held
    assert tenant.spec["networkProfile"] == {"address": "10.0.0.9", "port": 30_001, "podCidr": "10.244.0.0/14"}
    assert tenant.spec["kubernetes"]["version"] == "v1.33.1"
    assert tenant.labels == {"tenant.clastix.io": "c", "dpu.nvidia.com/cluster": "c"}
    assert not one(derived, kinds.SERVICE).is_held
    assert phase_of(derived) == "Creating"
    assert "has not been made yet (Kamaji reports it)" in conditions(derived)["Created"].message

    derived.observe(TENANT, ready=False, phase="Provisioning")
    assert one(derived, kinds.SERVICE).is_held
    assert conditions(derived)["Created"].message == "TenantControlPlane dpf/c is in phase Provisioning"
    derived.observe(TENANT, ready=True, phase="Ready", version="v1.33.1")
    assert conditions(derived)["Created"].holds
    assert conditions(derived)["KeepalivedReady"].holds
    assert "has not answered yet" in conditions(derived)["Ready"].message
    derived.observe(C, ready=False, phase="NotReady", message="no connection")
    assert (phase_of(derived), conditions(derived)["Ready"].holds) == ("NotReady", False)
    derived.observe(C, ready=True, phase="Ready")
    assert (phase_of(derived), conditions(derived)["Ready"].holds) == ("Ready", True)


def test_a_control_plane_is_never_deleted_because_its_port_is_not_observed() -> None:
    derived = Derived({C: kamaji()})
    derived.observe(SERVICE, ready=True, nodePort=30_001)
    derived.observe(TENANT, ready=True, phase="Ready")
    derived.observe(SERVICE)
    assert one(derived, kinds.TENANT_CONTROL_PLANE).is_held
    derived.observe(SERVICE, ready=True, nodePort="x")
    assert one(derived, kinds.TENANT_CONTROL_PLANE).is_held
    derived.apply({C: kamaji(), key(kinds.BFB, "image"): row()})
    assert one(derived, kinds.TENANT_CONTROL_PLANE).is_held
    derived.apply({C: None})
    assert wanted(derived, kinds.TENANT_CONTROL_PLANE) == []


def test_keepalived_gets_the_address_the_port_and_the_pull_secrets() -> None:
    config = key(kinds.DPF_OPERATOR_CONFIG, "config", "operator")
    derived = Derived({C: kamaji(), config: row({"imagePullSecrets": ["pull"]})})
    derived.observe(SERVICE, ready=True, nodePort=30_001)
    daemon = one(derived, kinds.DAEMON_SET)
    pod = daemon.spec["template"]["spec"]
    assert daemon.at.name == "c-keepalived"
    assert daemon.spec["selector"]["matchLabels"] == daemon.spec["template"]["metadata"]["labels"]
    environment = {each["name"]: each.get("value") for each in pod["initContainers"][0]["env"]}
    assert environment == {
        "INTERFACE": "eth0",
        "ROUTER_ID": "7",
        "NODE_PORT": "30001",
        "VIRTUAL_IP": "10.0.0.9",
        "NODE_IP": None,
    }
    assert pod["nodeSelector"] == {"zone": "a"}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    config_map = one(derived, kinds.CONFIG_MAP)
    assert config_map.at.name == pod["volumes"][1]["configMap"]["name"]
    for placeholder in environment:
        assert placeholder in config_map.fields["data"]["keepalived.conf"]
    copies = [each for each in wanted(derived, kinds.SECRET) if each.secret and each.secret.form == "copy"]
    here = [each for each in copies if each.at.source == "east"]
    assert [(each.at.namespace, each.secret.at.namespace) for each in here if each.secret] == [("dpf", "operator")]


def test_a_control_plane_without_a_virtual_address_needs_no_port() -> None:
    derived = Derived({CONFIG: row(), C: row({"type": "kamaji"})})
    tenant = one(derived, kinds.TENANT_CONTROL_PLANE)
    assert not tenant.is_held
    assert "networkProfile" not in tenant.spec
    assert wanted(derived, kinds.SERVICE) == []
    secret = next(each.secret for each in wanted(derived, kinds.SECRET) if each.secret)
    assert secret.at.name == "c-admin-kubeconfig"
    assert set(conditions(derived)) == {"Ready", "Created"}


@pytest.mark.parametrize("type_", ["static", "example.com/hosted"])
def test_a_cluster_of_somebody_else_needs_a_kubeconfig(type_: str) -> None:
    derived = Derived({CONFIG: row(), C: row({"type": type_})})
    assert conditions(derived)["Created"].message == (
        f"DPUCluster dpf/c names no Secret with a kubeconfig, and type {type_} needs one"
    )
    assert wanted(derived, kinds.SECRET) == []
    derived.apply({C: row({"type": type_, "kubeconfig": "mine"})})
    assert conditions(derived)["Created"].holds
    (secret,) = wanted(derived, kinds.SECRET)
    assert secret.secret is not None
    assert secret.secret.at.name == "mine"


def test_an_observation_of_a_cluster_derives_no_other_object_again() -> None:
    pool = key(kinds.DPU_SERVICE_IPAM, "pool")
    subnet = {"ipv4Subnet": {"subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "perNodeIPCount": 8}}
    derived = Derived({C: kamaji(), pool: row(subnet)})
    concerned = derived.derivation.in_clusters.changed_sources
    assert concerned({kinds.DPU_CLUSTER: {C: None}}, derived.state) == {}
    assert derived.observe(C, ready=True, phase="Ready", nodes=7) == []
    derived.apply({C: kamaji(version="v1.30.0")})
    assert concerned({kinds.DPU_CLUSTER: {C: None}}, derived.state) == {}
    assert concerned({kinds.DPU_CLUSTER: {C: None}}, Derived({C: kamaji()}).state) == {"east": None}
