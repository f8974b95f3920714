"""The network document of each DPU: what is in it, who shares it, and that it does not depend on the way to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources import kinds
from projections.resources.clusters import in_cluster
from projections.resources.network_documents.derive import NetworkDocuments, node_of
from projections.resources.network_documents.document import MAX_DOCUMENT_BYTES, NO_NETWORK, digest_of
from projections.resources.network_documents.stated import stated_networks
from projections.resources.rollouts.rows import Allocation
from projections.resources.state import Resource
from schemas.resources.dpf.names import CUSTOM_FLOWS, FIREFLY, HOST
from tests.support.derivations import SOURCE, Derived, device, dpu_set, full, key, row

CLUSTER = key(kinds.DPU_CLUSTER, "c")
WHERE = {CLUSTER: row(labels={"x": "1"}), key(kinds.DPU_CLUSTER, "d"): row(labels={"x": "2"})}
RACK = {"matchLabels": {"rack": "1"}}


def interface(spec: Mapping[str, Any], *, nodes: Any = None, clusters: Any = None, **labels: str) -> Resource:
    template = {"nodeSelector": nodes, "template": {"metadata": {"labels": labels}, "spec": spec}}
    return row({"dpuClusterSelector": clusters, "template": {"spec": template}})


def physical(port: str, **fields: Any) -> Resource:
    return interface({"interfaceType": "physical", "physical": {"interfaceName": port}}, **{"uplink": port} | fields)


def service(name: str, **fields: Any) -> Resource:
    end = {"serviceID": name, "network": "mybrsfc", "interfaceName": "p0_if"}
    return interface({"interfaceType": "service", "service": end}, **{"service": name} | fields)


def chain(*switches: Mapping[str, Any], nodes: Any = None, clusters: Any = None) -> Resource:
    template = {"nodeSelector": nodes, "template": {"spec": {"switches": [*switches]}}}
    return row({"dpuClusterSelector": clusters, "template": {"spec": template}})


def switch(*ports: Mapping[str, str], mtu: int | None = None, ipam: Any = None) -> dict[str, Any]:
    found = [{"serviceInterface": {"matchLabels": labels, "ipam": ipam}} for labels in ports]
    return {"ports": found, "serviceMTU": mtu}


def derived(rows: Mapping[str, Resource]) -> NetworkDocuments:
    found = Derived({**WHERE, **rows})
    return NetworkDocuments(stated_networks(found.state, found.derivation, SOURCE))


def interfaces(**rows: Resource) -> dict[str, Resource]:
    return {key(kinds.DPU_SERVICE_INTERFACE, name): found for name, found in rows.items()}


def chains(**rows: Resource) -> dict[str, Resource]:
    return {key(kinds.DPU_SERVICE_CHAIN, name): found for name, found in rows.items()}


UPLINK_TO_SERVICE = chains(web=chain(switch({"uplink": "p0"}, {"service": "web"}, mtu=9000)))


def test_a_document_has_interfaces_by_type_and_the_switches_of_chains() -> None:
    rows = interfaces(
        p0=physical("p0"),
        pf=interface({"interfaceType": "pf", "pf": {"pfID": 1}}),
        vf=interface({"interfaceType": "vf", "vf": {"pfID": 0, "vfID": 3}}),
        vlan=interface({"interfaceType": "vlan", "vlan": {"vlanID": 7, "parentInterfaceRef": "p0"}}),
        patch=interface({"interfaceType": "patch", "patch": {"peerBridge": "br-hbn"}}),
        ovn=interface({"interfaceType": "ovn"}),
        web=service("web"),
    )
    found = derived(rows | UPLINK_TO_SERVICE).of_node(CLUSTER, {})
    document = json.loads(found.text)
    assert {each["name"]: each.get("port") for each in document["interfaces"]} == {
        "dpf/p0": "p0",
        "dpf/pf": "pf1hpf",
        "dpf/vf": "pf0vf3",
        "dpf/vlan": None,
        "dpf/patch": None,
        "dpf/ovn": "puplinkbrsfc",
        "dpf/web": None,
    }
    by_name = {each["name"]: each for each in document["interfaces"]}
    assert by_name["dpf/vlan"]["settings"] == {"vlanID": 7, "parentInterfaceRef": "p0"}
    assert by_name["dpf/ovn"]["settings"] == {"peerBridge": "br-ovn"}
    assert (by_name["dpf/p0"]["mtu"], by_name["dpf/web"]["mtu"]) == (9000, 9000)
    assert "mtu" not in by_name["dpf/pf"], "1500 is the default"
    ports = [{"interface": "dpf/p0"}, {"interface": "dpf/web"}]
    assert document["switches"] == [{"chain": "dpf/web", "mtu": 9000, "number": 0, "ports": ports}]
    assert document["bridge"] == "br-sfc"
    assert found.digest == digest_of(found.text) and not found.faults
    assert {*found.parts} == {*rows, *UPLINK_TO_SERVICE}


def ptp_service(labels: Mapping[str, str], service_id: str = "web") -> dict[str, Resource]:
    spec = {"serviceID": service_id, "helmChart": {}, "serviceDaemonSet": {"labels": labels}}
    return {key(kinds.DPU_SERVICE, "firefly"): row(spec)}


def test_a_service_with_the_label_of_firefly_exchanges_ptp_messages() -> None:
    rows = interfaces(p0=physical("p0"), web=service("web")) | UPLINK_TO_SERVICE
    for found, is_ptp in (
        (ptp_service({CUSTOM_FLOWS: FIREFLY}), True),
        (ptp_service({CUSTOM_FLOWS: "other"}), False),
        (ptp_service({CUSTOM_FLOWS: FIREFLY}, "another"), False),
    ):
        document = derived(rows | found).of_node(CLUSTER, {})
        ptp = {each["name"]: each.get("ptp", False) for each in json.loads(document.text)["interfaces"]}
        assert ptp == {"dpf/p0": False, "dpf/web": is_ptp}
        assert not document.faults


def test_ptp_needs_one_physical_interface_in_its_switch() -> None:
    rows = interfaces(p0=physical("p0"), p1=physical("p1"), web=service("web")) | ptp_service({CUSTOM_FLOWS: FIREFLY})
    three = chains(web=chain(switch({"uplink": "p0"}, {"uplink": "p1"}, {"service": "web"})))
    found = derived(rows | three).of_node(CLUSTER, {})
    (fault,) = found.faults[key(kinds.DPU_SERVICE_CHAIN, "web")]
    assert fault == "PTP of dpf/web needs one PTP service and one physical interface in switch 0, which has 1 and 2"
    assert len(json.loads(found.text)["switches"][0]["ports"]) == 3


def test_a_port_without_an_interface_does_not_hold_up_the_others() -> None:
    rows = interfaces(p0=physical("p0"), a=service("a", twin="yes"), b=service("b", twin="yes"))
    web = chain(switch({"uplink": "p0"}, {"service": "none"}), switch({"service": "a"}, {"twin": "yes"}))
    other = chain(switch({"uplink": "p0"}, {"service": "b"}))
    found = derived(rows | chains(web=web, other=other)).of_node(CLUSTER, {})
    ports = {(each["chain"], each["number"]): each["ports"] for each in json.loads(found.text)["switches"]}
    assert ports == {
        ("dpf/other", 0): [{"interface": "dpf/p0"}, {"interface": "dpf/b"}],
        ("dpf/web", 0): [{"interface": "dpf/p0"}],
        ("dpf/web", 1): [{"interface": "dpf/a"}],
    }
    assert found.faults == {
        key(kinds.DPU_SERVICE_CHAIN, "web"): (
            "no DPUServiceInterface of its DPUs has the labels service=none of a port of switch 0",
            "dpf/a and dpf/b both have the labels twin=yes of a port of switch 1",
        )
    }


def test_selectors_of_clusters_and_nodes_decide_what_is_in_a_document() -> None:
    rows = interfaces(everywhere=physical("p0"), rack=physical("p1", nodes=RACK))
    rows |= interfaces(elsewhere=physical("p2", clusters={"matchLabels": {"x": "2"}}))
    documents = derived(rows)
    in_rack, outside = documents.of_node(CLUSTER, {"rack": "1"}), documents.of_node(CLUSTER, {"rack": "2"})
    assert [each["name"] for each in json.loads(in_rack.text)["interfaces"]] == ["dpf/everywhere", "dpf/rack"]
    assert [each["name"] for each in json.loads(outside.text)["interfaces"]] == ["dpf/everywhere"]
    assert documents.of_node(CLUSTER, {"rack": "2", "other": "label"}) is outside
    assert documents.of_node("local/DPUCluster/dpf/unknown", {}) == NO_NETWORK


def test_a_port_names_the_pools_of_its_addresses() -> None:
    pools = {
        key(kinds.DPU_SERVICE_IPAM, "blue"): row(
            {"ipv4Network": {"network": "10.0.0.0/16", "prefixSize": 24}, "metadata": {"labels": {"pool": "blue"}}}
        ),
        key(kinds.DPU_SERVICE_IPAM, "red"): row({"ipv4Subnet": {"subnet": "10.1.0.0/16"}}),
    }
    web = chain(switch({"service": "web"}, ipam={"matchLabels": {"pool": "blue"}, "defaultGateway": True}))
    found = derived(interfaces(web=service("web")) | pools | chains(web=web)).of_node(CLUSTER, {})
    (port,) = json.loads(found.text)["switches"][0]["ports"]
    assert port == {"interface": "dpf/web", "addresses": {"pools": ["blue"], "defaultGateway": True}}


def test_an_unreadable_object_is_a_fault_and_the_others_stay() -> None:
    rows = interfaces(p0=physical("p0"), bad=interface({"interfaceType": "vlan"}), worse=row({"template": 1}))
    rows |= chains(bad=chain(switch({"uplink": "p0"}), nodes={"matchLabels": {"x": 1}}))
    documents = derived(rows)
    assert {key.rpartition("/")[2] for key in documents.networks.faults} == {"bad", "worse"}
    assert len(documents.networks.faults) == 3
    assert [each["name"] for each in json.loads(documents.of_node(CLUSTER, {}).text)["interfaces"]] == ["dpf/p0"]


def test_a_document_that_is_too_large_has_no_text_and_blames_its_parts() -> None:
    long = {"service": "web", "a" * 60: "b" * 60}
    web = chain(*[switch(*[long] * 50) for _ in range(50)])
    rows = interfaces(**{"w" * 60: service("web", **{"a" * 60: "b" * 60})}) | chains(**{"w" * 63: web})
    found = derived(rows).of_node(CLUSTER, {})
    assert not found.text and str(MAX_DOCUMENT_BYTES) in found.faults[key(kinds.DPU_SERVICE_CHAIN, "w" * 63)][0]


def test_a_node_has_the_labels_of_its_dpu_and_those_that_were_observed() -> None:
    found = Derived(
        {
            CLUSTER: row(),
            key(kinds.DPU_NODE, "h"): row(),
            key(kinds.DPU_DEVICE, "d"): device("h"),
            key(kinds.DPU_SET, "s"): dpu_set(),
        }
    )
    dpu = key(kinds.DPU, "h-d")
    assert node_of(found.state, found.derivation, dpu) is None, "it is in no DPU cluster"
    found.state.allocations.put(dpu, Allocation(CLUSTER, 0))
    found.derivation.update(found.state, [dpu])
    found.observe(in_cluster(CLUSTER, kinds.NODE, "", "h-d").key, labels={"rack": "1", HOST: "foreign"})
    at = node_of(found.state, found.derivation, dpu)
    assert at == (CLUSTER, {"kubernetes.io/hostname": "h-d", "rack": "1", HOST: "h"})


_SELECTORS = st.sampled_from([None, RACK, {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}])
_PORTS = st.lists(st.sampled_from([{"uplink": "p0"}, {"uplink": "p1"}, {"service": "web"}]), min_size=1, max_size=3)
_INTERFACES = st.one_of(
    st.builds(lambda port, nodes: physical(port, nodes=nodes), st.sampled_from(["p0", "p1"]), _SELECTORS),
    st.builds(lambda nodes: service("web", nodes=nodes), _SELECTORS),
    st.just(row({"template": 1})),
)
_CHAINS = st.builds(lambda ports, nodes: chain(switch(*ports), nodes=nodes), _PORTS, _SELECTORS)
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        **{key(kinds.DPU_SERVICE_INTERFACE, name): _INTERFACES for name in "abc"},
        **{key(kinds.DPU_SERVICE_CHAIN, name): _CHAINS for name in "de"},
        CLUSTER: st.just(row()),
    },
)


@settings(max_examples=60)
@given(_ROWS, st.data())
def test_documents_do_not_depend_on_the_order_of_arrival(rows: dict[str, Resource], data: st.DataObject) -> None:
    grown = Derived()
    for name in data.draw(st.permutations([*rows])):
        grown.apply({name: rows[name]})
    whole = Derived(rows)
    ways = [
        stated_networks(grown.state, grown.derivation, SOURCE),
        stated_networks(whole.state, full(whole.state, data.draw(st.permutations([*rows]))), SOURCE),
    ]
    assert ways[0] == ways[1]
    for labels in ({}, {"rack": "1"}, {"rack": "2"}):
        first, second = (NetworkDocuments(each).of_node(CLUSTER, labels) for each in ways)
        assert first == second
        names = {each["name"] for each in json.loads(first.text)["interfaces"]}
        assert all(port["interface"] in names for each in json.loads(first.text)["switches"] for port in each["ports"])
