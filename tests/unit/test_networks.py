"""What address pools, networks, interfaces and chains become in each DPU cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources.clusters import cluster_source
from projections.resources.kinds import (
    CIDR_POOL,
    DPU_CLUSTER,
    DPU_DEPLOYMENT,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_IPAM,
    DPU_SERVICE_NAD,
    DPU_SERVICE_TEMPLATE,
    IP_POOL,
    NETWORK_ATTACHMENT,
    SERVICE_CHAIN_SET,
    SERVICE_INTERFACE_SET,
)
from projections.resources.state import Resource
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import IPAM_NAME, IPAM_NAMESPACE
from schemas.resources.dpf.networks import IPAM_CHILD_NAME, TRUSTED_FUNCTIONS
from tests.support.deployments import deployed, template
from tests.support.derivations import Derived, content, full, key, row

C, D = key(DPU_CLUSTER, "c"), key(DPU_CLUSTER, "d")
CLUSTERS = {C: row(labels={"x": "1"}), D: row(labels={"x": "2"})}
CHILDREN = (CIDR_POOL, IP_POOL, NETWORK_ATTACHMENT, SERVICE_CHAIN_SET, SERVICE_INTERFACE_SET)
ONLY_C = {"dpuClusterSelector": {"matchLabels": {"x": "1"}}}


def networks(derived: Derived) -> list[Wanted]:
    """The objects that are made from networks, interfaces and chains."""
    return [each for each in derived.derivation.in_clusters.claims.winners.values() if each.at.kind in CHILDREN]


def in_clusters(kind: str, found: Resource) -> list[Wanted]:
    return networks(Derived(CLUSTERS | {key(kind, "one"): found}))


def one(kind: str, spec: dict[str, Any], **fields: Any) -> Wanted:
    (found,) = in_clusters(kind, row(spec | ONLY_C, **fields))
    assert found.owner == key(kind, "one")
    return found


def test_a_network_becomes_a_cidr_pool() -> None:
    network = {
        "network": "10.0.0.0/16",
        "gatewayIndex": 1,
        "prefixSize": 24,
        "exclusions": ["10.0.0.9"],
        "excludeRanges": [{"startIP": "10.0.1.1", "endIP": "10.0.1.5"}],
        "allocations": {"b": "10.0.2.0/24", "a": "10.0.1.0/24"},
        "defaultGateway": True,
        "routes": [{"dst": "5.0.0.0/8"}],
    }
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    found = one(
        DPU_SERVICE_IPAM, {"ipv4Network": network, "nodeSelector": selector, "metadata": {"labels": {"p": "1"}}}
    )
    assert (found.at.kind, found.at.name, found.at.source) == (CIDR_POOL, "one", cluster_source(C))
    assert found.labels == {"p": "1", IPAM_NAME: "one", IPAM_NAMESPACE: "dpf"}
    assert found.spec == {
        "cidr": "10.0.0.0/16",
        "gatewayIndex": 1,
        "perNodeNetworkPrefix": 24,
        "exclusions": [
            {"startIP": "10.0.0.9", "endIP": "10.0.0.9"},
            {"startIP": "10.0.1.1", "endIP": "10.0.1.5"},
        ],
        "staticAllocations": [
            {"nodeName": "a", "prefix": "10.0.1.0/24"},
            {"nodeName": "b", "prefix": "10.0.2.0/24"},
        ],
        "defaultGateway": True,
        "routes": [{"dst": "5.0.0.0/8"}],
        "nodeSelector": selector,
    }


def test_a_subnet_becomes_an_ip_pool_of_another_name_if_the_user_gives_one() -> None:
    subnet = {"subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "perNodeIPCount": 8}
    found = one(DPU_SERVICE_IPAM, {"ipv4Subnet": subnet}, annotations={IPAM_CHILD_NAME: "other"})
    assert (found.at.kind, found.at.name) == (IP_POOL, "other")
    assert found.spec == {"subnet": "10.0.0.0/24", "perNodeBlockSize": 8, "gateway": "10.0.0.1"}


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({}, "exactly one of ipv4Network and ipv4Subnet must be given"),
        ({"ipv4Network": {"subnetsPerDPUCluster": 2}}, "a pool that is divided among DPU clusters"),
        ({"ipv4Network": 1}, "Expected `object | null`, got `int` - at `$.ipv4Network`"),
        ({"ipv4Subnet": {}, "clusterSelector": {"matchExpressions": [{"key": "a"}]}}, "matchExpressions[0]: operator"),
    ],
)
def test_a_pool_that_cannot_be_derived_has_a_fault(spec: dict[str, Any], fault: str) -> None:
    derived = Derived(CLUSTERS | {key(DPU_SERVICE_IPAM, "one"): row(spec)})
    assert fault in derived.derivation.in_clusters.faults[key(DPU_SERVICE_IPAM, "one")]
    assert networks(derived) == []


@pytest.mark.parametrize(
    ("sort", "annotations", "resource"),
    [
        ("sf", {}, "nvidia.com/bf_sf"),
        ("sf", {TRUSTED_FUNCTIONS: ""}, "nvidia.com/bf_sf_trusted"),
        ("vf", {}, "nvidia.com/bf_vf"),
        ("veth", {}, ""),
    ],
)
def test_a_network_names_the_resource_of_its_interfaces(sort: str, annotations: dict[str, str], resource: str) -> None:
    (found, _) = in_clusters(DPU_SERVICE_NAD, row({"resourceType": sort}, annotations=annotations))
    assert found.at.kind == NETWORK_ATTACHMENT
    assert found.annotations["k8s.v1.cni.cncf.io/resourceName"] == resource


def test_a_network_attachment_has_the_plugins_of_dpf() -> None:
    spec = {"resourceType": "sf", "bridge": "br-sfc", "serviceMTU": 9000, "ipam": True}
    ovs = {"type": "ovs", "mtu": 9000, "bridge": "br-sfc", "interface_type": "dpdk", "ipam": {"type": "nv-ipam"}}
    found = one(DPU_SERVICE_NAD, spec, annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert json.loads(found.spec["config"]) == {"cniVersion": "0.3.1", "name": "one", **ovs}
    assert [*found.annotations] == ["k8s.v1.cni.cncf.io/resourceName"]
    chained = one(DPU_SERVICE_NAD, spec | {"chainedCNIs": [{"type": "rdma", "config": {"a": 1}}]})
    plugins = [ovs, {"type": "rdma", "a": 1}]
    assert json.loads(chained.spec["config"]) == {"cniVersion": "0.3.1", "name": "one", "plugins": plugins}


@pytest.mark.parametrize(
    ("kind", "child"), [(DPU_SERVICE_CHAIN, SERVICE_CHAIN_SET), (DPU_SERVICE_INTERFACE, SERVICE_INTERFACE_SET)]
)
def test_chains_and_interfaces_become_sets(kind: str, child: str) -> None:
    inner = {"nodeSelector": {"matchLabels": {"a": "1"}}, "template": {"spec": {"switches": []}}}
    found = one(kind, {"template": {"metadata": {"labels": {"l": "1"}}, "spec": inner}})
    assert (found.at.kind, found.spec, found.labels) == (child, inner, {"l": "1"})


def test_clusters_get_and_lose_objects_as_their_labels_change() -> None:
    derived = Derived(CLUSTERS | {key(DPU_SERVICE_NAD, "one"): row({"resourceType": "vf"} | ONLY_C)})

    def sources() -> list[str]:
        return [each.at.source for each in networks(derived)]

    assert sources() == [cluster_source(C)]
    derived.apply({D: row(labels={"x": "1"})})
    assert sorted(sources()) == [cluster_source(C), cluster_source(D)]
    derived.apply({C: row(deleted_ms=4)})
    assert sources() == [cluster_source(D)]


def test_the_chain_of_a_deployment_reaches_each_cluster_and_stays_while_a_template_is_missing() -> None:
    derived = deployed()
    derived.apply(CLUSTERS)
    found = [each.at.kind for each in networks(derived)]
    assert sorted(found) == [SERVICE_CHAIN_SET] * 2 + [SERVICE_INTERFACE_SET] * 2
    chain = next(each for each in derived.derivation.wanted() if each.at.kind == DPU_SERVICE_CHAIN)
    derived.apply({chain.at.key: chain.as_row(5)})
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): None})
    assert derived.derivation.holds(key(DPU_DEPLOYMENT, "dep"))
    found = [each.at.kind for each in networks(derived)]
    assert found == [SERVICE_CHAIN_SET] * 2
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): template("hbn", helmChart={"source": {"version": "9"}})})
    names = {each.at.name for each in networks(derived)}
    assert chain.at.name in names


KINDS = (DPU_SERVICE_IPAM, DPU_SERVICE_NAD, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE)
SPECS = st.fixed_dictionaries(
    {
        "dpuClusterSelector": st.sampled_from([None, {"matchLabels": {"x": "1"}}, {"a": 1}]),
        "resourceType": st.sampled_from(["sf", "vf"]),
        "ipv4Network": st.sampled_from([None, {"network": "10.0.0.0/8"}, 1]),
        "template": st.sampled_from([{}, {"spec": {"a": 1}}]),
    }
)
CHANGES = st.one_of(
    st.tuples(
        st.sampled_from([C, D]), st.one_of(st.none(), st.sampled_from(["1", "2"]).map(lambda x: row(labels={"x": x})))
    ),
    st.tuples(
        st.builds(key, st.sampled_from(KINDS), st.sampled_from(["a", "b"])), st.one_of(st.none(), SPECS.map(row))
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_objects_of_clusters_do_not_depend_on_the_order_of_arrival(steps: list[Any], rng: Any) -> None:
    derived = Derived()
    for name, found in steps:
        derived.apply({name: found})
    keys = [*derived.state.objects.rows]
    rng.shuffle(keys)
    again = full(derived.state, [])
    for each in keys:
        again.update(derived.state, [each])
    assert content(again) == content(derived.derivation)
    assert again.in_clusters.faults == derived.derivation.in_clusters.faults
