"""Config ports of services: what hosts reach them by, from what is observed in DPU clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.kubernetes.foreign.services import CHART_SERVICE, CLUSTER_SERVICE
from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.services import config_ports
from projections.resources.state import ObjectId, Resource
from projections.resources.status_fields import status_fields
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import DPU_NODE_NAME, EXPOSED_PORT, HOST
from tests.support.derivations import SOURCE, Derived, content, full, key, row
from tests.support.kubernetes.custom import custom

CONFIG, SERVICE = key(kinds.DPF_OPERATOR_CONFIG, "config"), key(kinds.DPU_SERVICE, "svc")
C, D = key(kinds.DPU_CLUSTER, "c"), key(kinds.DPU_CLUSTER, "d", "other")
CHART = {"source": {"repoURL": "oci://registry/charts", "version": "1", "chart": "dts"}}
PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
LABELS = {"dpu.nvidia.com/dpuservice-name": "svc", "dpu.nvidia.com/dpuservice-namespace": "dpf"}
OURS = key(kinds.SERVICE, "svc")


def derived(*, clusters: tuple[str, ...] = (C,), **fields: Any) -> Derived:
    """A service with config ports for these clusters; `fields` are fields of its spec."""
    rows: dict[str, Resource] = {each: row({"type": "static", "kubeconfig": "admin"}) for each in clusters}
    spec = {"helmChart": CHART, "configPorts": {"ports": PORTS}} | fields
    return Derived(rows | {CONFIG: row(), SERVICE: row(spec, labels={"team": "a"})})


def in_dpus(kind: str, name: str, cluster: str = C) -> str:
    namespace = "" if kind == kinds.NODE else "dpf"
    return ObjectId(cluster_source(cluster), kind, namespace, name).key


def chart_service(made: Derived, cluster: str = C, name: str = "dts", **ports: int) -> list[str]:
    """The Service of the chart appears in a DPU cluster, with these ports on the nodes."""
    fields = {"service": "svc", "serviceNamespace": "dpf", "ports": ports}
    return made.observe(in_dpus(kinds.SERVICE, name, cluster), ready=True, **fields)


def node(made: Derived, name: str, address: str | None, cluster: str = C, **labels: str) -> list[str]:
    """A DPU becomes a node of a DPU cluster."""
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    where = in_dpus(kinds.NODE, name, cluster)
    return made.observe(where, ready=True, addresses=addresses, labels={DPU_NODE_NAME: f"host-{name}"} | labels)


def own(made: Derived, kind: str) -> dict[str, Wanted]:
    """The wanted objects of a kind in the cluster of the hosts, by name."""
    found = made.derivation.in_clusters.claims.winners.values()
    return {each.at.name: each for each in found if each.at.kind == kind and each.at.source == SOURCE}


def condition_of(made: Derived) -> Condition:
    found = conditions_of(SERVICE, World.of(made.state, made.derivation))
    return next(each for each in found if each.type == "ConfigPortsReconciled")


def test_a_service_for_hosts_leads_to_the_dpus_of_the_chart() -> None:
    made = derived()
    service = own(made, kinds.SERVICE)["svc"]
    assert service.spec == {
        "type": "NodePort",
        "internalTrafficPolicy": "Local",
        "externalTrafficPolicy": "Local",
        "ports": PORTS,
    }
    assert LABELS.items() <= service.labels.items()
    assert service.labels[EXPOSED_PORT] == "c"
    assert own(made, kinds.ENDPOINT_SLICE) == {}
    chart_service(made, http=30080, dns=30053, other=30001)
    node(made, "dpu-b", "10.0.0.2")
    assert node(made, "dpu-a", "10.0.0.1") == [key(kinds.ENDPOINT_SLICE, "svc")]
    node(made, "no-address", None)
    made.observe(
        in_dpus(kinds.NODE, "ipv6"), labels={HOST: "h"}, addresses=[{"type": "InternalIP", "address": "fd::1"}]
    )
    made.observe(in_dpus(kinds.NODE, "of-nobody"), addresses=[{"type": "InternalIP", "address": "10.0.0.9"}])
    found = own(made, kinds.ENDPOINT_SLICE)["svc"]
    assert found.fields == {
        "addressType": "IPv4",
        "ports": [
            {"name": "http", "port": 30080, "protocol": "TCP"},
            {"name": "dns", "port": 30053, "protocol": "UDP"},
        ],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "nodeName": "host-dpu-a"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": True}, "nodeName": "host-dpu-b"},
        ],
    }
    assert found.labels == LABELS | {
        "team": "a",
        EXPOSED_PORT: "c",
        "kubernetes.io/service-name": "svc",
        "endpointslice.kubernetes.io/managed-by": "dpuservice-manager",
    }
    made.observe(in_dpus(kinds.NODE, "dpu-b"))
    assert [each["nodeName"] for each in own(made, kinds.ENDPOINT_SLICE)["svc"].fields["endpoints"]] == ["host-dpu-a"]
    assert content(full(made.state)) == content(made.derivation)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"serviceType": "ClusterIP"}, {"type": "ClusterIP"}),
        ({"serviceType": "None"}, {"clusterIP": "None"}),
    ],
)
def test_types_without_ports_on_the_nodes(given: dict[str, Any], expected: dict[str, Any]) -> None:
    made = derived(configPorts={"ports": PORTS} | given)
    assert own(made, kinds.SERVICE)["svc"].spec == expected | {"internalTrafficPolicy": "Local", "ports": PORTS}
    made.observe(OURS, ready=True)
    assert status_fields(SERVICE, World.of(made.state, made.derivation)) == {"configPorts": {"c": PORTS}}


def test_a_given_port_of_the_nodes_is_asked_for_and_the_observed_ones_are_told() -> None:
    given = [PORTS[0] | {"nodePort": 30001}, PORTS[1]]
    made = derived(configPorts={"ports": given})
    assert own(made, kinds.SERVICE)["svc"].spec["ports"] == given
    world = World.of(made.state, made.derivation)
    assert status_fields(SERVICE, world) == {}
    made.observe(OURS, ready=True, ports={"http": 30001})
    assert status_fields(SERVICE, world) == {"configPorts": {"c": given[:1]}}
    made.observe(OURS, ready=True, ports={"http": 30001, "dns": 30002})
    assert status_fields(SERVICE, world) == {"configPorts": {"c": [given[0], PORTS[1] | {"nodePort": 30002}]}}


def test_only_nodes_that_run_the_service_are_endpoints() -> None:
    term = {"matchExpressions": [{"key": "version", "operator": "In", "values": ["2"]}]}
    made = derived(serviceDaemonSet={"nodeSelector": {"nodeSelectorTerms": [term, {"matchExpressions": []}]}})
    chart_service(made, http=30080, dns=30053)
    node(made, "old", "10.0.0.1", version="1")
    node(made, "new", "10.0.0.2", version="2")
    assert [each["nodeName"] for each in own(made, kinds.ENDPOINT_SLICE)["svc"].fields["endpoints"]] == ["host-new"]


def test_each_cluster_has_slices_with_its_own_ports() -> None:
    made = derived(clusters=(C, D))
    chart_service(made, C, http=30080, dns=30053)
    chart_service(made, D, http=31080, dns=31053)
    node(made, "a", "10.0.0.1", C)
    node(made, "b", "10.0.0.2", D)
    found = sorted(own(made, kinds.ENDPOINT_SLICE).values(), key=lambda each: each.labels[EXPOSED_PORT])
    assert [each.labels[EXPOSED_PORT] for each in found] == ["c", "d"]
    assert [each.fields["ports"][0]["port"] for each in found] == [30080, 31080]
    assert [each.fields["endpoints"][0]["nodeName"] for each in found] == ["host-a", "host-b"]
    assert {each.labels["kubernetes.io/service-name"] for each in found} == {"svc"}
    made.apply({D: None})
    assert [each.labels[EXPOSED_PORT] for each in own(made, kinds.ENDPOINT_SLICE).values()] == ["c"]


def test_slices_have_no_more_endpoints_than_a_server_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_ports, "ENDPOINTS_MAX", 2)
    made = derived()
    chart_service(made, http=30080, dns=30053)
    for number in range(5):
        node(made, f"n{number}", f"10.0.0.{number + 1}")
    found = own(made, kinds.ENDPOINT_SLICE)
    assert sorted(len(each.fields["endpoints"]) for each in found.values()) == [1, 2, 2]
    assert "svc" in found


def test_the_condition_says_which_ports_the_chart_lacks() -> None:
    made = derived()
    assert condition_of(made).status == "False"
    made.observe(OURS, ready=True)
    assert condition_of(made).message == (
        "the chart of DPUService dpf/svc has no Service with a node port for http, dns in DPU cluster dpf/c"
    )
    chart_service(made, http=30080)
    assert "for dns in" in condition_of(made).message
    chart_service(made, name="more", dns=30053)
    assert condition_of(made).holds
    made.apply({SERVICE: row({"helmChart": CHART})})
    assert (own(made, kinds.SERVICE), own(made, kinds.ENDPOINT_SLICE)) == ({}, {})
    assert condition_of(made).holds


def test_another_object_may_have_the_name() -> None:
    made = derived()
    made.apply(
        {key(kinds.DPU_CLUSTER, "svc"): row({"type": "kamaji", "clusterEndpoint": {"keepalived": {"vip": "v"}}})}
    )
    found = condition_of(made)
    assert (found.reason, "belongs to DPUCluster dpf/svc" in found.message) == ("Error", True)


def test_ports_on_nodes_are_observed() -> None:
    spec = {"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "x", "port": 1}]}
    found = CHART_SERVICE.observe(custom("dts", spec, labels=LABELS))
    assert found == {"ready": True, "service": "svc", "serviceNamespace": "dpf", "ports": {"http": 30080}}
    assert json.loads(json.dumps(CLUSTER_SERVICE.observe(custom("svc", spec)))) == {
        "ready": True,
        "message": "",
        "nodePort": 30080,
        "ports": {"http": 30080},
    }
    headless = CLUSTER_SERVICE.observe(custom("svc", {"type": "ClusterIP", "ports": [{"name": "http", "port": 80}]}))
    assert headless == {"ready": True, "message": "", "nodePort": 0, "ports": {}}
