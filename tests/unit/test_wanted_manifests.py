"""Every object that follows from the manifests of DPF's users is valid for its own kind, in both generations."""

from __future__ import annotations

import json

import pytest

from projections.resources import kinds
from projections.resources.state import ObjectId, Resource
from projections.resources.wanted import Wanted
from schemas.resources.dpf import DPF_KINDS
from schemas.resources.validation import validate
from tests.support.derivations import SOURCE, Derived, row
from tests.support.dpf_manifests import CURRENT, OLD, manifests

FEATURE = "feature.node.kubernetes.io/dpu"
NODE = {f"{FEATURE}-0-pci-address": "0000-04-00", f"{FEATURE}-enabled": "true", "row": "1"}
LABELS = {
    "DPUCluster": {"region": "north"},
    "DPUDevice": {"generation": "bf3", "provisioning.dpu.nvidia.com/dpudevice-num-of-pfs": "2"},
    "DPUNode": {"row": "1", "rack": "7", f"{FEATURE}-enabled": "true"},
}


def stated(generation: str) -> dict[str, Resource]:
    """The manifests as rows, with defaults, and with labels that their selectors select. The current ones refer to some
    of the older ones, so those are there, too."""
    rows = {ObjectId(SOURCE, kinds.NODE, "", "worker1").key: row(labels=NODE)}
    for given in (*manifests(OLD), *(manifests(CURRENT) if generation == CURRENT else ())):
        metadata = given.manifest["metadata"]
        labels = metadata.get("labels", {}) | LABELS.get(given.kind.name, {})
        key = ObjectId(SOURCE, f"{given.kind.name}.{given.kind.group}", metadata["namespace"], metadata["name"]).key
        found = validate(given.kind, given.manifest)
        assert not found.faults
        rows[key] = row(found.manifest.get("spec"), labels=labels, annotations=metadata.get("annotations", {}))
    return rows


def faults(wanted: Wanted) -> list[str]:
    name, _, group = wanted.at.kind.partition(".")
    if (group, name) not in DPF_KINDS:
        return []
    kind = DPF_KINDS[group, name]
    metadata = {"name": wanted.at.name, "namespace": wanted.at.namespace, "labels": wanted.labels}
    metadata["annotations"] = wanted.annotations
    manifest = {"apiVersion": f"{group}/{kind.version}", "kind": name, "metadata": metadata, "spec": wanted.spec}
    return [f"{wanted.at.key} {fault}" for fault in validate(kind, json.loads(json.dumps(manifest))).faults]


@pytest.mark.parametrize("generation", [OLD, CURRENT])
def test_every_wanted_object_is_valid(generation: str) -> None:
    derived = Derived(stated(generation))
    wanted = [*derived.derivation.wanted()]
    assert [fault for each in wanted for fault in faults(each)] == []
    held = {each.at.kind for each in wanted if each.is_held}
    assert held <= {kinds.TENANT_CONTROL_PLANE}  # its port is not known yet
    assert derived.derivation.set_faults == {}
    assert {each.at.kind for each in wanted} >= {
        kinds.DPU,
        kinds.DPU_SET,
        kinds.DPU_SERVICE,
        kinds.DPU_SERVICE_INTERFACE,
        kinds.DPU_SERVICE_CHAIN,
        kinds.SERVICE_CHAIN_SET,
        kinds.SERVICE_INTERFACE_SET,
        kinds.CIDR_POOL,
        kinds.IP_POOL,
        kinds.APPLICATION,
        kinds.APP_PROJECT,
        kinds.NAMESPACE,
        kinds.SECRET,
        kinds.SERVICE_ACCOUNT,
        kinds.TENANT_CONTROL_PLANE,
    }


def test_a_dpu_of_release_24_10_has_its_name_and_fields() -> None:
    derived = Derived(stated(OLD))
    assert derived.names(kinds.DPU) == ["worker1-0000-04-00"]
    spec = derived.spec(kinds.DPU, "worker1-0000-04-00")
    assert (spec["nodeName"], spec["pciAddress"], spec["bfb"], spec["dpuFlavor"]) == (
        "worker1",
        "0000-04-00",
        "jammy",
        "hbn",
    )
