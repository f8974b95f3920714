"""What the configuration of a DPU is rendered from: its flavor, its host, and the settings of the platform."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from projections.resources import kinds
from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import (
    CONFIG_MAP,
    REBOOT_COMMAND,
    TRUSTED_FUNCTIONS,
    cluster_of,
    flavor_of,
    inputs_of,
)
from projections.resources.configuration.inputs import Inputs
from projections.resources.go_templates.render import Fault
from projections.resources.state import Observed, Resource
from projections.resources.wanted import Wanted
from tests.support.derivations import Derived, device, dpu_set, key, row

FLAVOR = {"bfcfgParameters": ["A=1"]}
ROWS: Mapping[str, Resource] = {
    key(kinds.DPU_NODE, "worker"): row(),
    key(kinds.DPU_DEVICE, "d1"): device("worker"),
    key(kinds.DPU_SET, "set"): dpu_set(),
    key(kinds.DPU_FLAVOR, "flavor"): row(FLAVOR),
}
CONFIG = key(kinds.DPF_OPERATOR_CONFIG, "dpfoperatorconfig")


def world_of(rows: Mapping[str, Resource] | None = None, observed: Mapping[str, Any] | None = None) -> World:
    derived = Derived({**ROWS, **(rows or {})})
    seen = {at: Observed("", json.dumps(each), "dpuplane", 1, 1) for at, each in (observed or {}).items()}
    derived.state.observe(seen)
    return World.of(derived.state, derived.derivation)


def wanted_in(world: World) -> Wanted:
    return world.derivation.dpus.winners[key(kinds.DPU, "worker-d1")]


def inputs(rows: Mapping[str, Resource] | None = None, observed: Mapping[str, Any] | None = None) -> Inputs | Fault:
    world = world_of(rows, observed)
    flavor = flavor_of(world, wanted_in(world))
    assert not isinstance(flavor, Fault), flavor
    return inputs_of(world, wanted_in(world), flavor, None)


def test_a_source_without_configuration_has_the_defaults() -> None:
    found = inputs()
    assert isinstance(found, Inputs)
    assert found.hostname == "worker-d1"
    assert found.flavor.bfcfg_parameters == ("A=1",)
    assert found[2:] == (None, False, 1500, 1, 0, False, None)


def test_host_device_flavor_and_platform_decide() -> None:
    spec = {
        "networking": {"controlPlaneMTU": 1400},
        "provisioningController": {
            "installInterface": {"installViaRedfish": {}},
            "bfCFGTemplateConfigMap": "template",
        },
    }
    found = inputs(
        {
            CONFIG: row(spec),
            key(kinds.DPU_NODE, "worker"): row(annotations={REBOOT_COMMAND: "skip"}),
            key(kinds.DPU_DEVICE, "d1"): row(
                {"serialNumber": "s", "numberOfPFs": 2}, labels={"provisioning.dpu.nvidia.com/dpunode-name": "worker"}
            ),
            key(kinds.DPU_FLAVOR, "flavor"): row(FLAVOR, annotations={TRUSTED_FUNCTIONS: "3"}),
        },
        {key(CONFIG_MAP, "template"): {"ready": True, "data": {"BF_CFG_TEMPLATE": "x"}}},
    )
    assert isinstance(found, Inputs)
    assert found[2:] == (None, True, 1400, 2, 3, True, "x")


def test_zero_trust_uses_the_management_port() -> None:
    found = inputs({CONFIG: row({"deploymentMode": "zero-trust"})})
    assert isinstance(found, Inputs)
    assert found.is_out_of_band


@pytest.mark.parametrize("count", ["0", "11", "x", "-1", "1.0"])
def test_a_count_of_trusted_functions_out_of_range_is_none(count: str) -> None:
    found = inputs({key(kinds.DPU_FLAVOR, "flavor"): row(FLAVOR, annotations={TRUSTED_FUNCTIONS: count})})
    assert isinstance(found, Inputs)
    assert found.trusted_functions == 0


def test_a_template_that_is_not_known_is_a_fault() -> None:
    config = row({"provisioningController": {"bfCFGTemplateConfigMap": "template"}})
    found = inputs({CONFIG: config})
    assert found == "ConfigMap dpf/template, which has the template for bf.cfg, has no BF_CFG_TEMPLATE or is not known"


def test_a_flavor_that_does_not_exist_or_cannot_be_read_is_a_fault() -> None:
    world = world_of({key(kinds.DPU_SET, "set"): dpu_set(dpuTemplate={"spec": {"dpuFlavor": "other"}})})
    assert flavor_of(world, wanted_in(world)) == "DPUFlavor dpf/other does not exist"
    found = inputs({key(kinds.DPU_FLAVOR, "flavor"): row({"sysctl": 7})})
    assert isinstance(found, Fault)
    assert found.startswith("spec of the flavor: Expected `object | null`, got `int` - at `$.sysctl`")


def test_a_flavor_template_takes_the_values_of_the_device() -> None:
    rows = {
        key(kinds.DPU_SET, "set"): dpu_set(dpuTemplate={"spec": {"dpuFlavorTemplate": "template"}}),
        key(kinds.DPU_FLAVOR_TEMPLATE, "template"): row({"template": "spec: {bfcfgParameters: ['A={{ .a }}']}"}),
        key(kinds.DPU_DEVICE, "d1"): row(
            {"serialNumber": "s", "values": {"a": 7}}, labels={"provisioning.dpu.nvidia.com/dpunode-name": "worker"}
        ),
    }
    world = world_of(rows)
    found = flavor_of(world, wanted_in(world))
    assert not isinstance(found, Fault)
    assert found.spec == {"bfcfgParameters": ["A=7"]}
    without = world_of({**rows, key(kinds.DPU_DEVICE, "d1"): device("worker")})
    assert flavor_of(without, wanted_in(without)) == "DPUFlavorTemplate dpf/template: template: line 1: .a has no value"


def test_a_dpu_joins_a_cluster_that_its_set_selects() -> None:
    clusters = {key(kinds.DPU_CLUSTER, name): row(labels={"x": name}) for name in ("a", "b")}
    template = {"spec": {"dpuFlavor": "flavor", "cluster": {"selector": {"matchLabels": {"x": "b"}}}}}
    world = world_of({**clusters, key(kinds.DPU_SET, "set"): dpu_set(dpuTemplate=template)})
    assert cluster_of(world, wanted_in(world)) == key(kinds.DPU_CLUSTER, "b")
    none = world_of()
    assert cluster_of(none, wanted_in(none)) is None
