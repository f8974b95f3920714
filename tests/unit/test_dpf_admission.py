"""The checks of DPF's kinds that no schema can state."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from schemas.resources.dpf import DPF_KINDS
from schemas.resources.dpf.admission import amount_of
from schemas.resources.dpf.names import PROVISIONING, SERVICES, VERSION
from schemas.resources.validation import validate
from tests.support.dpf_manifests import manifests
from tests.support.dpf_mutations import Mutated, mutated

NETWORK = {"network": "10.1.0.0/16", "prefixSize": 24}
SUBNET = {"subnet": "10.2.0.0/24", "gateway": "10.2.0.1", "perNodeIPCount": 8}
RANGE = {"startIP": "10.0.0.1", "endIP": "10.0.0.9"}
TEMPLATE = {"spec": {"bfb": {"name": "b"}, "dpuFlavor": "f"}}
SERVICE = {"serviceTemplate": "a", "serviceConfiguration": "a"}
DEPLOYMENT = {"dpus": {"bfb": "b", "flavor": "f"}}


def faults(kind: str, spec: dict[str, Any], older: dict[str, Any] | None = None) -> list[str]:
    group = PROVISIONING if (PROVISIONING, kind) in DPF_KINDS else SERVICES
    head = {"apiVersion": f"{group}/{VERSION}", "kind": kind, "metadata": {"name": "one"}}
    earlier = None if older is None else {**head, "spec": older}
    return [str(fault) for fault in validate(DPF_KINDS[group, kind], {**head, "spec": spec}, earlier).faults]


@pytest.mark.parametrize(
    ("kind", "spec", "line"),
    [
        (
            "DPUFlavor",
            {"systemReservedResources": {"cpu": 1}},
            "spec.systemReservedResources: must not be set without dpuResources",
        ),
        (
            "DPUFlavor",
            {"dpuResources": {"cpu": 2, "memory": "1Gi"}, "systemReservedResources": {"cpu": "2500m", "memory": "1G"}},
            "spec.systemReservedResources.cpu: must be at most 2, as in dpuResources",
        ),
        (
            "DPUFlavor",
            {"hostNetworkInterfaceConfigs": [{"portNumber": 1}]},
            "spec.hostNetworkInterfaceConfigs[0]: must have mtu, dhcp or nvconfig",
        ),
        (
            "DPUSet",
            {"dpuTemplate": TEMPLATE, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}},
            "spec.strategy.rollingUpdate.maxUnavailable: must be above 0, but is 0",
        ),
        (
            "DPUSet",
            {"dpuTemplate": TEMPLATE, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "0%"}}},
            "spec.strategy.rollingUpdate.maxUnavailable: must be a number, or a percentage from 1% to 100%, not '0%'",
        ),
        (
            "DPUDeployment",
            {**DEPLOYMENT, "services": {"a": {**SERVICE, "dependsOn": [{"name": "b"}]}}},
            "spec.services.a.dependsOn[0].name: must be another service of this deployment",
        ),
        (
            "DPUDiscovery",
            {"ipRangeSpec": {"ipRange": {**RANGE, "endIP": "10.0.0.0"}}},
            "spec.ipRangeSpec.ipRange.endIP: must not be below startIP, which is 10.0.0.1",
        ),
    ],
)
def test_a_spec_with_a_fault_is_refused(kind: str, spec: dict[str, Any], line: str) -> None:
    assert faults(kind, spec) == [line]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"network": "10.1.0.0"}, "network: must be a network such as 10.1.0.0/16, but is '10.1.0.0'"),
        ({"network": "10.1.0.0/255.255.0.0"}, "network: must be a network such as 10.1.0.0/16, but is "),
        ({"prefixSize": 15}, "prefixSize: must be from 16 to 32, but is 15"),
        ({"gatewayIndex": 256}, "gatewayIndex: must be from 0 to 255 in a /24, but is 256"),
        ({"allocations": {"a": "10.1.1.0/25"}}, "allocations.a: must be a /24 of 10.1.0.0/16, but is '10.1.1.0/25'"),
        ({"exclusions": ["10.2.0.1"]}, "exclusions[0]: must be an address in 10.1.0.0/16, but is '10.2.0.1'"),
        ({"excludeRanges": [RANGE]}, "excludeRanges[0].startIP: must be an address in 10.1.0.0/16"),
        (
            {"excludeRanges": [{"startIP": "10.1.0.9", "endIP": "10.1.0.1"}]},
            "excludeRanges[0].endIP: must not be below startIP, which is 10.1.0.9",
        ),
        ({"subnetsPerDPUCluster": 257}, "subnetsPerDPUCluster: must be from 1 to 256, but is 257"),
        ({"routes": [{"dst": "10.0.0.0"}]}, "routes[0].dst: must be a network such as 0.0.0.0/0, but is '10.0.0.0'"),
    ],
)
def test_a_network_with_a_fault_is_refused(spec: dict[str, Any], line: str) -> None:
    first, *_ = faults("DPUServiceIPAM", {"ipv4Network": {**NETWORK, **spec}})
    assert first.startswith(f"spec.ipv4Network.{line}")


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"gateway": "10.3.0.1"}, "gateway: must be an address in 10.2.0.0/24, but is '10.3.0.1'"),
        ({"perNodeIPCount": 255}, "perNodeIPCount: must be from 1 to 254, but is 255"),
        ({"blocksPerDPUCluster": 32}, "blocksPerDPUCluster: must be from 1 to 31, but is 32"),
        ({"subnet": "10.2.0.0/31"}, "subnet: must have at least 4 addresses, but is 10.2.0.0/31"),
    ],
)
def test_a_subnet_with_a_fault_is_refused(spec: dict[str, Any], line: str) -> None:
    assert faults("DPUServiceIPAM", {"subnet": {**SUBNET, **spec}}) == [f"spec.subnet.{line}"]


@pytest.mark.parametrize(
    ("older", "spec", "lines"),
    [
        (NETWORK, {"network": "10.0.0.0/8"}, []),
        (NETWORK, {"network": "10.1.0.0/17"}, ["spec.network.network: must not shrink: 10.1.0.0/16 is in use"]),
        (NETWORK, {"prefixSize": 25}, ["spec.network.prefixSize: is immutable, and was 24"]),
        (NETWORK, {"subnetsPerDPUCluster": 4}, ["spec.network.subnetsPerDPUCluster: cannot be added or removed later"]),
        (
            {**NETWORK, "subnetsPerDPUCluster": 9},
            {"subnetsPerDPUCluster": 8},
            ["spec.network.subnetsPerDPUCluster: must not fall below 9"],
        ),
    ],
)
def test_a_pool_takes_no_address_from_a_pod(older: dict[str, Any], spec: dict[str, Any], lines: list[str]) -> None:
    assert faults("DPUServiceIPAM", {"network": {**older, **spec}}, {"ipv4Network": older}) == lines


def test_a_pool_stays_what_it_is() -> None:
    sentence = "cannot replace ipv4Network: make another DPUServiceIPAM for it"
    assert faults("DPUServiceIPAM", {"subnet": SUBNET}, {"ipv4Network": NETWORK}) == [f"spec.subnet: {sentence}"]
    six = {"network": "2001:db8::/48", "prefixSize": 64}
    assert faults("DPUServiceIPAM", {"network": six}, {"ipv4Network": NETWORK}) == [f"spec.network: {sentence}"]
    assert faults("DPUServiceIPAM", {}) == [
        "spec: exactly one of ipv4Network, ipv4Subnet, network or subnet must be specified"
    ]


@pytest.mark.parametrize("text", ["::ffff:10.0.0.0/112", "fe80::1%eth0/64", "10.0.0.0/+8", "/8", "10.0.0.0/8/8"])
def test_a_network_has_one_family_and_no_zone(text: str) -> None:
    (line,) = faults("DPUServiceIPAM", {"network": {"network": text, "prefixSize": 120}})
    assert line.startswith("spec.network.network: must be a network")


def test_an_object_that_is_not_changed_is_not_checked_again() -> None:
    older = {"systemReservedResources": {"cpu": 1}}
    assert faults("DPUFlavor", older, older) == []


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (2, 2),
        ("2.5", "2.5"),
        ("500m", "0.5"),
        ("4Gi", 4 * 2**30),
        ("1k", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("2e3", 2000),
        ("2E-1", "0.2"),
        ("-1", -1),
        ("1e999999999", 10**30),
        (".5u", "0.0000005"),
    ],
)
def test_quantities_have_the_amounts_of_kubernetes(text: str | int, amount: str | int) -> None:
    assert amount_of(text) == Decimal(amount)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(mutated(manifests()))
def test_no_changed_manifest_raises(each: Mutated) -> None:
    found = validate(each.given.kind, each.manifest)
    again = validate(each.given.kind, each.manifest, each.given.manifest)
    assert all(fault.sentence for fault in (*found.faults, *again.faults))
