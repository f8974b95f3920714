"""The identity of an installation changes with everything that requires a new one, and with nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.resources.blame import Blame
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.handover import (
    BMC_ADDRESS,
    FALLBACK_ZONE,
    NODE_BMC_ADDRESS,
    ZONE_LABEL,
    DpuForZone,
    handover,
    image_fault,
    outdated,
)
from projections.resources.install_identity import install_identity
from projections.resources.kinds import BFB, DPU, DPU_DEVICE, DPU_FLAVOR, DPU_FLAVOR_TEMPLATE, DPU_NODE, DPU_SET, NODE
from projections.resources.state import Observed, Resource
from tests.support.derivations import Derived, dpu_set, key, row

ADDRESS = {BMC_ADDRESS: "simulated:a-d0"}
DPU_KEY = key(DPU, "a-d0")


def fleet(**others: Resource | None) -> Derived:
    """One host with a device in rack r1, and a DPUSet; `others` replace objects by the name of their kind."""
    rows: dict[str, Resource | None] = {
        "BFB/image": row({"url": "http://images/1"}),
        "DPUFlavor/flavor": row({"grub": {"kernelParameters": ["a"]}, "dpuResources": {"cpu": 1}}),
        "DPUNode/a": row(labels={ZONE_LABEL: "r1"}),
        "DPUDevice/d0": device(),
        "DPUSet/s": dpu_set(),
    }
    rows |= others
    kinds = (BFB, DPU_FLAVOR, DPU_FLAVOR_TEMPLATE, DPU_NODE, DPU_DEVICE, DPU_SET, NODE)
    by_name = {kind.partition(".")[0]: kind for kind in kinds}
    keys = {name: key(by_name[name.partition("/")[0]], name.partition("/")[2]) for name in rows}
    return Derived({keys[name]: found for name, found in rows.items() if found is not None})


def device(annotations: dict[str, str] | None = None, **spec: Any) -> Resource:
    labels = {"provisioning.dpu.nvidia.com/dpunode-name": "a"}
    given = ADDRESS if annotations is None else annotations
    return row({"serialNumber": "s1"} | spec, labels=labels, annotations=given)


def identity(derived: Derived) -> str | None:
    return install_identity(derived.state, derived.derivation.dpus.winners[DPU_KEY])


def template(**fields: Any) -> Resource:
    """A DPUSet whose template has these fields."""
    found = dpu_set()
    spec = json.loads(found.spec)
    spec["dpuTemplate"]["spec"] |= fields
    return row(spec)


BEFORE = identity(fleet())


def test_the_identity_names_the_image() -> None:
    assert BEFORE is not None
    assert BEFORE.startswith("image/")
    assert len(BEFORE) == len("image/") + 10


@pytest.mark.parametrize(
    "change",
    [
        {"BFB/image": row({"url": "http://images/2"})},
        {"DPUFlavor/flavor": row({"grub": {"kernelParameters": ["b"]}})},
        {"DPUFlavor/flavor": row({"grub": {"kernelParameters": ["a"]}, "nvconfig": [{"parameters": ["A=1"]}]})},
        {"DPUSet/s": template(secureBoot=True)},
        {"DPUSet/s": dpu_set("other"), "BFB/other": row({"url": "http://images/1"})},
    ],
)
def test_a_change_that_requires_an_installation_changes_the_identity(change: dict[str, Resource]) -> None:
    assert identity(fleet(**change)) not in (BEFORE, None)


@pytest.mark.parametrize(
    "change",
    [
        {"BFB/image": row({"fileName": "x.bfb", "url": "http://images/1"}, created_ms=9, labels={"a": "b"})},
        {"DPUFlavor/flavor": row({"dpuResources": {"cpu": 2}, "grub": {"kernelParameters": ["a"]}})},
        {
            "DPUFlavor/flavor": row(
                {"grub": {"kernelParameters": ["a"]}, "serviceReadiness": {"gate": "OperationalReady"}}
            )
        },
        {"DPUSet/s": template(nodeEffect={"drain": {}})},
        {"DPUSet/s": template(secureBoot=False)},
    ],
)
def test_other_changes_keep_the_identity(change: dict[str, Resource]) -> None:
    assert identity(fleet(**change)) == BEFORE


def test_without_image_or_flavor_there_is_no_identity() -> None:
    assert identity(fleet(**{"BFB/image": None})) is None
    assert identity(fleet(**{"DPUFlavor/flavor": None})) is None


def test_a_flavor_from_a_template_changes_with_the_template_and_with_the_values_of_the_device() -> None:
    with_template = {"DPUSet/s": template(dpuFlavor=None, dpuFlavorTemplate="t")}
    first = {**with_template, "DPUFlavorTemplate/t": row({"template": "1"})}
    found = [
        identity(fleet(**first)),
        identity(fleet(**{**with_template, "DPUFlavorTemplate/t": row({"template": "2"})})),
        identity(fleet(**{**first, "DPUDevice/d0": device(values={"a": 1})})),
    ]
    assert None not in found
    assert len({*found}) == 3


def test_a_wanted_dpu_is_handed_over_with_the_zone_of_its_host() -> None:
    derived = fleet()
    found = handover(derived.state, derived.derivation, DPU_KEY)
    assert found == DpuForZone("a-d0", "r1", "a", "s1", "simulated:a-d0", BEFORE or "")
    assert handover(derived.state, derived.derivation, key(DPU, "b")) is None


def test_the_zone_comes_from_the_node_if_the_dpu_node_has_no_label() -> None:
    without = fleet(**{"DPUNode/a": row()})
    found = handover(without.state, without.derivation, DPU_KEY)
    assert isinstance(found, DpuForZone)
    assert found.zone == FALLBACK_ZONE
    by_node = fleet(**{"DPUNode/a": row(), "Node/a": row(labels={ZONE_LABEL: "r2"})})
    found = handover(by_node.state, by_node.derivation, DPU_KEY)
    assert isinstance(found, DpuForZone)
    assert found.zone == "r2"


@pytest.mark.parametrize("annotations", [{}, {BMC_ADDRESS: "carrier-pigeon:1"}, {BMC_ADDRESS: "simulated:"}])
def test_a_device_without_a_usable_address_is_to_blame(annotations: dict[str, str]) -> None:
    derived = fleet(**{"DPUDevice/d0": device(annotations)})
    found = handover(derived.state, derived.derivation, DPU_KEY)
    assert isinstance(found, Blame)
    assert found.key == key(DPU_DEVICE, "d0")
    assert BMC_ADDRESS in found.message


def test_the_dpu_of_a_node_has_the_address_in_the_annotations_of_its_node() -> None:
    labels = {"feature.node.kubernetes.io/dpu-0-pci-address": "0000-03-00"}
    node = row(labels=labels, annotations={NODE_BMC_ADDRESS.format(0): "simulated:x"})
    derived = fleet(**{"DPUNode/a": None, "DPUDevice/d0": None, "Node/n": node})
    found = handover(derived.state, derived.derivation, key(DPU, "n-0000-03-00"))
    assert isinstance(found, DpuForZone)
    assert (found.bmc_address, found.node) == ("simulated:x", "n")


def test_a_dpu_is_outdated_by_what_is_installed_on_it() -> None:
    derived = fleet()

    def found(installed: str) -> str | None:
        text = json.dumps({"ready": True, "phase": "Ready", "installed": installed})
        derived.state.observe({DPU_KEY: Observed("", text, "zone", 1, 1)})
        return outdated(derived.state, derived.derivation, DPU_KEY)

    assert outdated(derived.state, derived.derivation, DPU_KEY) is None, "nothing is known of it"
    assert found("") is None, "it is being installed"
    assert found(BEFORE or "") is None
    assert found("image/0000000000") == "OutdatedDPUFlavor"
    assert found("other/0000000000") == "OutdatedBFB"


def test_the_condition_of_a_dpu_names_the_device_without_an_address() -> None:
    derived = fleet(**{"DPUDevice/d0": device({})})
    derived.state.observe({key(BFB, "image"): Observed("", '{"ready":true}', "image store", 1, 1)})
    ready = conditions_of(DPU_KEY, World.of(derived.state, derived.derivation))[0]
    assert (ready.status, ready.reason) == ("False", "Error")
    assert [blame.key for blame in ready.blames] == [key(DPU_DEVICE, "d0")]


def test_an_installation_waits_for_its_image() -> None:
    derived = fleet()
    assert image_fault(derived.state, derived.derivation, DPU_KEY) == "BFB dpf/image is not ready"
    derived.state.observe({key(BFB, "image"): Observed("", '{"ready":true}', "image store", 1, 1)})
    assert image_fault(derived.state, derived.derivation, DPU_KEY) is None
    gone = fleet(**{"DPUFlavor/flavor": None})
    assert image_fault(gone.state, gone.derivation, DPU_KEY) == "its image or its flavor does not exist"
