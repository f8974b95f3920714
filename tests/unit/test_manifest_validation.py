"""Manifests checked without Kubernetes: defaults, sentences with the path of each fault, and updates."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.resources.dpf import DPF_KINDS, KINDS
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.kinds import Kind
from schemas.resources.patterns import WORDS
from schemas.resources.validation import schema_of, unreplaced_variables, validate

TEMPLATE = {"bfb": {"name": "jammy"}, "dpuFlavor": "hbn", "nodeEffect": {"drain": True}}


def manifest(kind: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    head = {"apiVersion": f"{PROVISIONING}/{VERSION}", "kind": kind, "metadata": {"name": "one", **metadata}}
    return {**head, "spec": spec}


def faults(
    kind: str,
    spec: Mapping[str, Any],
    older: Mapping[str, Any] | None = None,
    *,
    with_status: bool = False,
    **rest: Any,
) -> list[str]:
    """Every fault of a manifest as a line."""
    earlier = None if older is None else manifest(kind, older, **rest)
    found = validate(DPF_KINDS[PROVISIONING, kind], manifest(kind, spec, **rest), earlier, with_status=with_status)
    return [str(fault) for fault in found.faults]


def completed(kind: str, spec: Mapping[str, Any]) -> Any:
    found = validate(DPF_KINDS[PROVISIONING, kind], manifest(kind, spec))
    assert not found.faults
    return found.manifest["spec"]


def test_defaults_are_applied_within_defaults_and_lists() -> None:
    assert completed("DPUNode", {}) == {"nodeRebootMethod": {"hostAgent": {}}}
    assert completed("DPUDevice", {"serialNumber": "MT1", "bmcPort": None})["bmcPort"] == 443
    found = completed("DPUFlavor", {"configFiles": [{"path": "/etc/x", "raw": ""}]})
    assert found["configFiles"][0]["type"] == "cloud-init"
    template = completed("DPUSet", {"dpuTemplate": {"spec": {"bfb": {"name": "b"}, "dpuFlavor": "f"}}})["dpuTemplate"]
    assert template["spec"]["nodeEffect"] == {
        "drain": {"automaticNodeReboot": True},
        "force": False,
        "applyOnLabelChange": False,
    }


def test_the_given_manifest_stays_as_it_was() -> None:
    given = manifest("DPUNode", {"dpus": [{"name": "a"}]})
    found = validate(DPF_KINDS[PROVISIONING, "DPUNode"], given).manifest
    assert given == manifest("DPUNode", {"dpus": [{"name": "a"}]})
    found["spec"]["nodeRebootMethod"]["external"] = {}
    again = validate(DPF_KINDS[PROVISIONING, "DPUNode"], given).manifest
    assert again["spec"]["nodeRebootMethod"] == {"hostAgent": {}}


@pytest.mark.parametrize(
    ("kind", "spec", "line"),
    [
        ("DPUSet", {"dpuTemplate": {"spec": {**TEMPLATE, "bfb": {}}}}, "spec.dpuTemplate.spec.bfb.name: must be set"),
        ("BFB", {"url": "https://x/y.bfb", "flieName": "y.bfb"}, "spec.flieName: is no field here; fileName is one"),
        ("BFB", {"url": 5}, "spec.url: must be a string, but is 5"),
        (
            "BFB",
            {"url": "ftp://x"},
            'spec.url: must be an address that begins with http:// or https://, but is "ftp://x"',
        ),
        (
            "DPUDiscovery",
            {"ipRangeSpec": {"ipRange": {"startIP": "10.0.0.256", "endIP": "10.0.1.0"}}},
            'spec.ipRangeSpec.ipRange.startIP: must be an IP address, such as 10.0.0.1, but is "10.0.0.256"',
        ),
        ("DPUCluster", {"type": "static", "maxNodes": 3001}, "spec.maxNodes: must be at most 3000, but is 3001"),
        (
            "DPUDevice",
            {"serialNumber": "a", "bmcIp": "1.2.3"},
            'spec.bmcIp: must be of the format ipv4, but is "1.2.3"',
        ),
        (
            "DPUSet",
            {"dpuTemplate": {"spec": TEMPLATE}, "strategy": {"type": "Rolling"}},
            'spec.strategy.type: must be one of "OnDelete", "Recreate", "RollingUpdate", not "Rolling"',
        ),
        (
            "DPUSet",
            {"dpuTemplate": {"spec": {**TEMPLATE, "nodeEffect": {"drain": True, "hold": True}}}},
            "spec.dpuTemplate.spec.nodeEffect: "
            "must have exactly one of taint, noEffect, customLabel, drain, customAction, hold, neither false nor empty",
        ),
        (
            "DPUSet",
            {"dpuTemplate": {"spec": {**TEMPLATE, "blueFieldSoftware": {"name": "b"}}}},
            "spec.dpuTemplate.spec: exactly one of bfb or blueFieldSoftware must be set",
        ),
        (
            "DPUFlavor",
            {"nvconfig": [{"device": "p0"}, {"device": "P0"}]},
            "spec.nvconfig: each nvconfig.device (including unspecified as '*') must be unique (case-insensitive)",
        ),
        (
            "DPUFlavor",
            {"dpuResources": {"cpu": True}},
            "spec.dpuResources.cpu: must be an integer or a string, but is true",
        ),
        ("DPUNode", {"dpus": ["a"]}, 'spec.dpus[0]: must be an object, but is "a"'),
    ],
)
def test_a_fault_is_a_sentence_with_its_path(kind: str, spec: dict[str, Any], line: str) -> None:
    assert faults(kind, spec) == [line]


@pytest.mark.parametrize(
    ("effect", "is_one"),
    [
        ({"drain": True, "noEffect": False}, True),
        ({"customLabel": {"a": "b"}, "hold": False}, True),
        ({"drain": {}, "customAction": ""}, True),
        ({"drain": {"automaticNodeReboot": False}}, True),
        ({"noEffect": False}, False),
        ({"drain": False}, False),
        ({"customLabel": {}}, False),
        ({"drain": True, "taint": {"key": "k", "effect": "NoSchedule"}}, False),
    ],
)
def test_an_effect_that_is_false_or_empty_is_none(effect: dict[str, Any], is_one: bool) -> None:
    found = faults("DPUSet", {"dpuTemplate": {"spec": {**TEMPLATE, "nodeEffect": effect}}})
    assert (found == []) == is_one


@pytest.mark.parametrize(
    "bundle", ["https://x/fw.fwpkg", {"MT_0000001665": "https://x/a", "MT_0000000884": "https://x/b"}, None]
)
def test_a_bluefield_software_has_one_bundle_or_one_for_each_psid(bundle: Any) -> None:
    found = completed("BlueFieldSoftware", {"osIso": "https://x/os.iso", "pldmFwBundle": bundle})
    assert found.get("pldmFwBundle") == bundle
    assert faults("BlueFieldSoftware", {"osIso": "https://x/os.iso", "pldmFwBundle": {}})
    assert faults("BlueFieldSoftware", {"osIso": "https://x/os.iso", "pldmFwBundle": {"MT_1": ""}})


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ({"name": "A"}, "metadata.name: must be at most 253 lower-case letters, digits, '-' and '.', not \"A\""),
        ({"name": "a" * 49}, "metadata.name: name length can't be bigger than 48 chars"),
        ({"name": None}, "metadata.name: must be set"),
        ({"labels": {"a b": "c"}}, 'metadata.labels["a b"]: must have a qualified name as its key'),
        ({"labels": {"a": 1}}, "metadata.labels.a: must be a string, but is 1"),
        ({"lables": {}}, "metadata.lables: is no field here"),
    ],
)
def test_metadata_are_checked(metadata: dict[str, Any], line: str) -> None:
    assert faults("DPUNode", {}, **metadata) == [line]


def test_every_fault_of_a_manifest_is_reported() -> None:
    lines = faults("DPUDevice", {"bmcPort": 0, "numberOfPFs": "2", "values": {"any": [None]}, "a": 1}, labels={"": "x"})
    assert [line.partition(":")[0] for line in lines] == [
        'metadata.labels[""]',
        "spec.a",
        "spec.serialNumber",
        "spec.bmcPort",
        "spec.numberOfPFs",
    ]


def test_an_update_is_compared_with_the_older_object() -> None:
    spec = {"url": "https://x/y.bfb"}
    assert faults("BFB", {"url": "https://x/z.bfb"}, spec) == ["spec.url: Value is immutable"]
    assert faults("BFB", spec, spec) == []
    assert faults("BFB", {**spec, "fileName": "a.bfb"}, spec) == []
    assert faults("DPUCluster", {"type": "static", "kubeconfig": "a"}, {"type": "static", "kubeconfig": ""}) == []


RESOURCES: dict[str, Any] = {"dpuResources": {"cpu": 4}}


@pytest.mark.parametrize(
    ("field", "fixed"),
    [
        ({"dpuMode": "dpu"}, "dpuMode"),
        ({"bfcfgParameters": ["A=1"]}, "bfcfgParameters"),
        ({"dpuResources": {"cpu": 5}}, "dpuResources"),
        ({"systemReservedResources": {"cpu": 1}}, "systemReservedResources"),
        ({"hostNetworkInterfaceConfigs": [{"portNumber": 0, "mtu": 1500}]}, "hostNetworkInterfaceConfigs"),
        ({"configFiles": [{"path": "/a", "raw": "b"}]}, "configFiles with type cloud-init (the default)"),
        ({"grub": {"kernelParameters": ["a"]}}, ""),
        ({"sysctl": {"parameters": ["a=1"]}}, ""),
        ({"nvconfig": [{"parameters": ["A=1"]}]}, ""),
        ({"ovs": {"rawConfigScript": "true"}}, ""),
        ({"packages": [{"name": "a"}]}, ""),
        ({"systemdServices": [{"name": "a", "operation": "Start"}]}, ""),
        ({"containerdConfig": {"registryEndpoint": "https://x"}}, ""),
        ({"serviceReadiness": {"gate": "OperationalReady"}}, ""),
        ({"ewNicConfigurations": [{"numVfs": 1, "linkType": "Ethernet"}]}, ""),
        ({"dma": {"enabled": True}}, ""),
        ({"scalableFunctions": [{"count": 1}]}, ""),
        ({"virtualFunctions": [{"count": 1}]}, ""),
        (
            {
                "configFiles": [
                    {"type": "agent-applied", "path": "/a", "contentFrom": {"configMapKeyRef": {"key": "k"}}}
                ]
            },
            "",
        ),
    ],
)
def test_some_fields_of_a_flavor_are_edited_in_place(field: dict[str, Any], fixed: str) -> None:
    """Those that the current release of DPF lets users edit: an added and a removed value is an edit, too."""
    expected = [f"spec: {fixed} {'are' if ' ' in fixed else 'is'} immutable"] if fixed else []
    assert faults("DPUFlavor", {**RESOURCES, **field}, RESOURCES) == expected
    if field.keys() != RESOURCES.keys():
        assert faults("DPUFlavor", RESOURCES, {**RESOURCES, **field}) == expected


def test_a_default_is_no_change() -> None:
    assert faults("DPUDevice", {"serialNumber": "a", "bmcPort": 443}, {"serialNumber": "a"}) == []


def test_what_an_update_leaves_alone_may_break_a_later_rule() -> None:
    invalid = {"type": "static", "maxNodes": 9_999}
    assert faults("DPUCluster", {**invalid, "version": "1.33"}, invalid) == []
    assert faults("DPUCluster", {**invalid, "maxNodes": 9_998}, invalid) != []
    assert faults("DPUCluster", invalid) != []


def test_the_name_of_a_cluster_is_checked_when_it_is_created() -> None:
    sentence = "metadata.name: name must be a DNS-1035 label"
    (line,) = faults("DPUCluster", {"type": "static"}, name="9a")
    assert line.startswith(sentence)
    assert faults("DPUCluster", {"type": "static", "maxNodes": 5}, {"type": "static"}, name="9a") == []


def test_users_state_no_status() -> None:
    kind = DPF_KINDS[PROVISIONING, "DPUNode"]
    given = {**manifest("DPUNode", {}), "status": {"rebootMethod": "Kick"}}
    found = validate(kind, given)
    assert (found.faults, "status" in found.manifest) == ((), False)
    (fault,) = validate(kind, given, with_status=True).faults
    assert fault.path == "status.rebootMethod"


FIELDS = (
    "name",
    "spec",
    "template",
    "switches",
    "ports",
    "nodeEffect",
    "drain",
    "bfb",
    "matchLabels",
    "interfaceType",
    "vf",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.dates() | st.binary(),
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.sampled_from(FIELDS), parts, max_size=6)
    ),
    max_leaves=40,
)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), ANYTHING, ANYTHING, ANYTHING)
def test_nothing_that_a_file_can_contain_raises(kind: Kind, metadata: Any, spec: Any, status: Any) -> None:
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    for given_metadata in (metadata, {"name": "one"}):
        document = {**head, "metadata": given_metadata, "spec": spec, "status": status}
        found = validate(kind, document, with_status=True)
        assert all(fault.sentence and "\n" not in fault.sentence for fault in found.faults)
        if not found.faults:
            assert validate(kind, found.manifest, found.manifest, with_status=True) == (found.manifest, ())


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({1: "a"}, "spec.values: must have texts as keys; quote the key 1"),
        (datetime.date(2026, 1, 1), "spec.values: must be a text, a number, a list or an object, not a date: quote it"),
        ([2**63], "spec.values[0]: must fit into 64 bits"),
        ({"a b": float("nan")}, 'spec.values["a b"]: must be a finite number'),
        ("\ud800", "spec.values: must be valid Unicode"),
    ],
)
def test_a_value_that_json_cannot_write_is_a_fault(value: Any, line: str) -> None:
    assert faults("DPUDevice", {"serialNumber": "a", "values": value}) == [line]


def test_a_document_that_is_nested_too_deep_is_a_fault() -> None:
    value: Any = {}
    for _ in range(5_000):
        value = [value]
    (line,) = faults("DPUDevice", {"serialNumber": "a", "values": value})
    assert line.endswith("must have at most 64 levels of lists and objects")


def test_variables_that_nobody_replaced_are_found() -> None:
    kind = DPF_KINDS[PROVISIONING, "DPUFlavor"]
    given = manifest(
        "DPUFlavor", {"ovs": {"rawConfigScript": "set -e\necho $NAME"}, "grub": {"kernelParameters": ["a"]}}
    )
    assert list(unreplaced_variables(kind, given)) == []
    bfb = manifest("BFB", {"url": "https://$HOST/${FILE}"}, namespace="$NAMESPACE")
    lines = [str(fault) for fault in unreplaced_variables(DPF_KINDS[PROVISIONING, "BFB"], bfb)]
    assert lines == [
        "metadata.namespace: has $NAMESPACE, a variable that nobody replaced",
        "spec.url: has $HOST, a variable that nobody replaced",
    ]


def test_every_pattern_of_a_spec_is_told_in_words() -> None:
    found = {pattern for kind in KINDS for pattern in _patterns(schema_of(kind)["properties"]["spec"])}
    assert found == WORDS.keys()


def _patterns(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("pattern"), str):
                yield schema["pattern"]
            for part in schema.values():
                yield from _patterns(part)
        case list():
            for part in schema:
                yield from _patterns(part)
