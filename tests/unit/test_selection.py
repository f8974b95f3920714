"""Which DPUs each DPUSet wants: selectors of both generations, names, labels, and devices that two sets select."""

from __future__ import annotations

from typing import Any

import pytest

from projections.resources.kinds import DPU, DPU_DEVICE, DPU_NODE, DPU_SET, NODE
from projections.resources.selectors import compiled
from schemas.resources.dpf.names import (
    DPU_DEVICE_NAME,
    DPU_NODE_NAME,
    DPU_SET_NAME,
    DPU_SET_NAMESPACE,
    PROVISIONING,
)
from tests.support.derivations import Derived, device, dpu_set, key, row

FEATURE = "feature.node.kubernetes.io/dpu-"


def fleet(**sets: Any) -> Derived:
    """Two hosts, a with one device and b with two, and these DPUSets."""
    rows = {
        key(DPU_NODE, "a"): row(labels={"rack": "1"}),
        key(DPU_NODE, "b"): row(labels={"rack": "2"}),
        key(DPU_DEVICE, "d0"): device("a", labels={"type": "bf3"}, serial="S0"),
        key(DPU_DEVICE, "d1"): device("b", labels={"type": "bf3"}),
        key(DPU_DEVICE, "d2"): device("b", labels={"type": "bf2"}),
    }
    return Derived(rows | {key(DPU_SET, name): found for name, found in sets.items()})


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ({}, ["a-d0", "b-d1", "b-d2"]),
        ({"dpuNodeSelector": {"matchLabels": {"rack": "2"}}}, ["b-d1", "b-d2"]),
        ({"nodeSelector": {"matchLabels": {"rack": "2"}}}, ["b-d1", "b-d2"]),
        ({"dpuDeviceSelector": {"matchLabels": {"type": "bf3"}}}, ["a-d0", "b-d1"]),
        ({"dpuSelector": {"type": "bf3"}}, ["a-d0", "b-d1"]),
        ({"dpuSelector": {"type": "bf3"}, "dpuNodeSelector": {"matchLabels": {"rack": "2"}}}, ["b-d1"]),
        ({"dpuNodeSelector": {"matchLabels": {"rack": "3"}}}, []),
    ],
)
def test_a_set_selects_by_the_labels_of_hosts_and_devices(selectors: dict[str, Any], expected: list[str]) -> None:
    assert fleet(one=dpu_set(**selectors)).names(DPU) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "rack", "operator": "In", "values": ["1", "3"]}, ["a-d0"]),
        ({"key": "rack", "operator": "NotIn", "values": ["1"]}, ["b-d1", "b-d2"]),
        ({"key": "row", "operator": "NotIn", "values": ["1"]}, ["a-d0", "b-d1", "b-d2"]),
        ({"key": "rack", "operator": "Exists"}, ["a-d0", "b-d1", "b-d2"]),
        ({"key": "row", "operator": "DoesNotExist"}, ["a-d0", "b-d1", "b-d2"]),
    ],
)
def test_match_expressions_are_those_of_kubernetes(expression: dict[str, Any], expected: list[str]) -> None:
    assert fleet(one=dpu_set(dpuNodeSelector={"matchExpressions": [expression]})).names(DPU) == expected


@pytest.mark.parametrize(
    ("selector", "fault"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "Is"}]}, "operator must be one of In, NotIn, Exists"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "values: operator In needs at least one"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}, "operator Exists has none"),
        ({"matchExpressions": [{"operator": "Exists"}]}, "a key is missing"),
        ({"matchExpressions": {}}, None),
        ({"matchExpressions": {"a": 1}}, "matchExpressions a list"),
        ({"matchLabels": {"a": 1}}, "matchLabels.a: the value must be text"),
        ({"matchLabel": {"a": "1"}}, "matchLabel: is not a field of a selector"),
    ],
)
def test_a_selector_that_cannot_be_read_has_a_fault(selector: dict[str, Any], fault: str | None) -> None:
    found = compiled(selector)
    assert fault in found if fault and isinstance(found, str) else found == ()


def test_a_set_with_a_fault_selects_nothing() -> None:
    wrong = {"matchExpressions": [{"key": "rack", "operator": "Is"}]}
    derived = fleet(one=dpu_set(dpuNodeSelector=wrong))
    assert derived.names(DPU) == []
    assert "dpuNodeSelector.matchExpressions[0]: operator" in derived.derivation.set_faults[key(DPU_SET, "one")]


def test_a_dpu_has_the_name_and_labels_and_spec_of_dpf() -> None:
    derived = fleet(one=dpu_set("v2", labels={"team": "net"}, dpuDeviceSelector={"matchLabels": {"type": "bf3"}}))
    found = next(derived.derivation.wanted())
    assert found.at.name == "a-d0"
    assert found.owner == key(DPU_SET, "one")
    assert found.labels == {
        DPU_SET_NAME: "one",
        DPU_SET_NAMESPACE: "dpf",
        DPU_DEVICE_NAME: "d0",
        DPU_NODE_NAME: "a",
        "team": "net",
        "type": "bf3",
    }
    assert found.spec == {
        "dpuNodeName": "a",
        "dpuDeviceName": "d0",
        "serialNumber": "S0",
        "bfb": "v2",
        "dpuFlavor": "flavor",
        "nodeEffect": {"noEffect": True},
    }


def test_the_form_of_release_24_10_selects_one_dpu_of_each_node() -> None:
    labels = {
        f"{FEATURE}0-pci-address": "0000-04-00",
        f"{FEATURE}0-pf0-name": "eth2",
        f"{FEATURE}1-pci-address": "0000-2b-00",
        "zone": "x",
    }
    rows = {key(NODE, "Worker1"): row(labels=labels), key(DPU_SET, "one"): dpu_set(nodeSelector={})}
    derived = Derived(rows)
    assert derived.names(DPU) == ["worker1-0000-04-00"]
    assert derived.spec(DPU, "worker1-0000-04-00")["nodeName"] == "Worker1"
    assert next(derived.derivation.wanted()).labels[f"{PROVISIONING}/dpu-pf-name"] == "eth2"
    derived.apply({key(DPU_SET, "one"): dpu_set(dpuSelector={f"{FEATURE}1-pci-address": "0000-2b-00"})})
    assert derived.names(DPU) == ["worker1-0000-2b-00"]
    derived.apply({key(DPU_SET, "one"): dpu_set(dpuNodeSelector={"matchLabels": {"zone": "x"}})})
    assert derived.names(DPU) == []


def test_a_dpu_node_replaces_the_node_of_the_same_name() -> None:
    node = row(labels={f"{FEATURE}0-pci-address": "0000-04-00"})
    derived = Derived({key(NODE, "a"): node, key(DPU_SET, "one"): dpu_set()})
    assert derived.names(DPU) == ["a-0000-04-00"]
    derived.apply({key(DPU_NODE, "a"): row(), key(DPU_DEVICE, "d0"): device("a")})
    assert derived.names(DPU) == ["a-d0"]
    derived.apply({key(DPU_NODE, "a"): None})
    assert derived.names(DPU) == ["a-0000-04-00"]


def test_a_device_without_the_label_is_in_the_oldest_node_that_lists_it() -> None:
    lists = {"dpus": [{"name": "d0"}]}
    derived = Derived({key(DPU_DEVICE, "d0"): row({"serialNumber": "s"}), key(DPU_SET, "one"): dpu_set()})
    assert derived.names(DPU) == []
    derived.apply({key(DPU_NODE, "b"): row(lists, created_ms=2)})
    assert derived.names(DPU) == ["b-d0"]
    derived.apply({key(DPU_NODE, "c"): row(lists, created_ms=1)})
    assert derived.names(DPU) == ["c-d0"]
    derived.apply({key(DPU_NODE, "c"): row(lists, created_ms=1, deleted_ms=5)})
    assert derived.names(DPU) == ["b-d0"]


def test_the_older_of_two_sets_has_a_device_that_both_select() -> None:
    derived = fleet(new=dpu_set("v2", created_ms=5), old=dpu_set("v1", dpuSelector={"type": "bf3"}, created_ms=4))
    images = {each.at.name: each.spec["bfb"] for each in derived.derivation.wanted()}
    assert images == {"a-d0": "v1", "b-d1": "v1", "b-d2": "v2"}
    lost = derived.derivation.selection.lost_to(key(DPU_SET, "new"))
    assert lost == {key(DPU_SET, "old"): key(DPU_DEVICE, "d0")}
    derived.apply({key(DPU_SET, "old"): None})
    assert {each.spec["bfb"] for each in derived.derivation.wanted()} == {"v2"}


def test_sets_of_other_namespaces_select_other_devices() -> None:
    derived = fleet()
    derived.apply({key(DPU_SET, "one", "other"): dpu_set()})
    assert derived.names(DPU) == []


def test_a_changed_label_changes_the_dpus_of_its_host_only() -> None:
    derived = fleet(one=dpu_set(dpuNodeSelector={"matchLabels": {"rack": "2"}}))
    assert derived.apply({key(DPU_NODE, "a"): row(labels={"rack": "2"})}) == [key(DPU, "a-d0")]
    assert derived.apply({key(DPU_NODE, "a"): row(labels={"rack": "2", "other": "x"})}) == []
    assert derived.names(DPU) == ["a-d0", "b-d1", "b-d2"]


def test_a_changed_template_changes_the_dpus_of_its_set_only() -> None:
    derived = fleet(one=dpu_set("v1", dpuSelector={"type": "bf3"}), two=dpu_set("v1", created_ms=5))
    assert derived.apply({key(DPU_SET, "one"): dpu_set("v2", dpuSelector={"type": "bf3"})}) == [
        key(DPU, "a-d0"),
        key(DPU, "b-d1"),
    ]
    assert {each.at.name: each.spec["bfb"] for each in derived.derivation.wanted()} == {
        "a-d0": "v2",
        "b-d1": "v2",
        "b-d2": "v1",
    }


def test_labels_of_a_device_win_over_those_of_the_template_on_its_node() -> None:
    derived = fleet(one=row({"dpuTemplate": {"spec": {"cluster": {"nodeLabels": {"a": "1", "b": "1"}}}}}))
    spec = {"serialNumber": "s", "cluster": {"nodeLabels": {"b": "2"}}}
    derived.apply({key(DPU_DEVICE, "d0"): row(spec, labels={DPU_NODE_NAME: "a"})})
    assert derived.spec(DPU, "a-d0")["cluster"] == {"nodeLabels": {"a": "1", "b": "2"}}
