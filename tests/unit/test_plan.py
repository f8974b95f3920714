"""What an apply would change, in order: DPUs, services and chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources.dpus import outdated_reason
from projections.resources.kinds import (
    BFB,
    DPU_DEPLOYMENT,
    DPU_DEVICE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_NODE,
    DPU_SERVICE,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_CONFIGURATION,
    DPU_SERVICE_TEMPLATE,
    DPU_SET,
)
from projections.resources.plan import Action, PlanStep, plan
from projections.resources.state import Resource, ResourcesState
from schemas.resources.dpf.dpu import OUTDATED_REASONS
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.deployments import configuration, deployed, deployment
from tests.support.derivations import Derived, device, dpu_set, full, key, row
from tests.unit.test_derivation_properties import changes


def planned(derived: Derived, rows: Mapping[str, Resource | None]) -> list[PlanStep]:
    """The plan of these changes, which are not applied to `derived`."""
    after = ResourcesState()
    after.apply({**derived.state.objects.rows, **rows})
    return plan((derived.state, derived.derivation), (after, full(after)))


def texts(steps: list[PlanStep]) -> list[str]:
    return [step.text.rsplit("-", 1)[0] if step.action >= Action.ATTACH else step.text for step in steps]


def fleet() -> Derived:
    """Three hosts with a device each in racks 0, 1 and 1, and a DPUSet for each of the racks."""
    rows = {key(BFB, "v1"): row(), key(BFB, "v2"): row()}
    for number in range(3):
        rows[key(DPU_NODE, f"h{number}")] = row(labels={"rack": str(min(number, 1))})
        rows[key(DPU_DEVICE, f"d{number}")] = device(f"h{number}")
    for rack in range(2):
        rows[key(DPU_SET, f"rack{rack}")] = dpu_set("v1", dpuNodeSelector={"matchLabels": {"rack": str(rack)}})
    return Derived(rows)


def test_a_new_image_reflashes_the_dpus_of_its_set_in_order_of_names() -> None:
    changed = dpu_set("v2", dpuNodeSelector={"matchLabels": {"rack": "1"}})
    steps = planned(fleet(), {key(DPU_SET, "rack1"): changed})
    assert [step.text for step in steps] == ["reflash DPU dpf/h1-d1", "reflash DPU dpf/h2-d2"]
    assert steps[0].changes == {"bfb": ("v1", "v2")}
    assert steps[0].owner == key(DPU_SET, "rack1")


def test_a_flavor_and_an_image_that_are_edited_in_place_reflash_the_dpus_that_have_them() -> None:
    rows = {key(DPU_FLAVOR, "flavor"): row({"sysctl": {"parameters": ["a=1"]}}), key(BFB, "v1"): row({"url": "a"})}
    derived = fleet()
    derived.apply(rows)
    derived.apply({key(DPU_SET, "rack0"): dpu_set("v2", dpuNodeSelector={"matchLabels": {"rack": "0"}})})
    changed = {"sysctl": {"parameters": ["a=2"]}, "serviceReadiness": {"gate": "OperationalReady"}}
    steps = planned(derived, {key(DPU_FLAVOR, "flavor"): row(changed), key(BFB, "v1"): row({"url": "b"})})
    flavor = {"dpuFlavor.sysctl": ({"parameters": ["a=1"]}, {"parameters": ["a=2"]})}
    assert [(step.text, step.changes) for step in steps] == [
        ("reflash DPU dpf/h0-d0", flavor),
        ("reflash DPU dpf/h1-d1", {"bfb.url": ("a", "b")} | flavor),
        ("reflash DPU dpf/h2-d2", {"bfb.url": ("a", "b")} | flavor),
    ]
    only_gate = {"sysctl": {"parameters": ["a=1"]}, "serviceReadiness": {"gate": "OperationalReady"}}
    assert planned(derived, {key(DPU_FLAVOR, "flavor"): row(only_gate)}) == []


def test_values_and_templates_of_flavors_reflash_the_devices_that_have_them() -> None:
    template = {"spec": {"bfb": {"name": "v1"}, "dpuFlavorTemplate": "t"}}
    rows = {key(DPU_SET, f"rack{rack}"): None for rack in range(2)} | {
        key(DPU_SET, "all"): row({"dpuTemplate": template})
    }
    derived = fleet()
    derived.apply(rows)
    names = {each.spec["dpuFlavor"] for each in derived.derivation.wanted()}
    assert len(names) == 1
    changed = row({"serialNumber": "s", "values": {"vlan": 7}}, labels={DPU_NODE_NAME: "h1"})
    assert [step.text for step in planned(derived, {key(DPU_DEVICE, "d1"): changed})] == ["reflash DPU dpf/h1-d1"]
    steps = planned(derived, {key(DPU_FLAVOR_TEMPLATE, "t"): row({"template": "grub: {}"})})
    assert [step.action for step in steps] == [Action.REFLASH] * 3
    derived.apply({key(DPU_FLAVOR_TEMPLATE, "t"): row({"template": "grub: {}"})})
    assert {each.spec["dpuFlavor"] for each in derived.derivation.wanted()}.isdisjoint(names)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"secureBoot": True, "dpuFlavor": "g", "bfb": "v2"}, "OutdatedBFB"),
        ({"secureBoot": True, "dpuFlavor": "g"}, "OutdatedDPUFlavor"),
        ({"secureBoot": True, "blueFieldSoftware": "b"}, "OutdatedSecureBoot"),
        ({"blueFieldSoftware": "b"}, "OutdatedBlueFieldSoftware"),
        ({"nodeEffect": {"hold": True}, "cluster": {}}, None),
    ],
)
def test_a_dpu_is_outdated_for_the_first_reason_of_dpf(changed: dict[str, Any], reason: str | None) -> None:
    spec = {"bfb": "v1", "dpuFlavor": "f"}
    assert outdated_reason(spec, spec | changed) == reason
    assert reason is None or reason in OUTDATED_REASONS


def test_dpus_are_created_removed_relabelled_and_updated() -> None:
    derived = fleet()
    steps = planned(
        derived,
        {
            key(DPU_NODE, "h0"): row(labels={"rack": "9"}),
            key(DPU_NODE, "h2"): row(labels={"rack": "0"}),
            key(DPU_DEVICE, "d3"): device("h1"),
            key(DPU_DEVICE, "d1"): device("h1", labels={"new": "x"}),
        },
    )
    assert [step.text for step in steps] == [
        "remove DPU dpf/h0-d0",
        "create DPU dpf/h1-d3",
        "relabel DPU dpf/h2-d2",
        "relabel DPU dpf/h1-d1",
    ]
    effect = dpu_set("v1", dpuNodeSelector={"matchLabels": {"rack": "0"}})
    spec = effect.spec.replace('"noEffect": true', '"hold": true')
    only = planned(derived, {key(DPU_SET, "rack0"): _with_spec(effect, spec)})
    assert [(step.action, [*step.changes]) for step in only] == [(Action.UPDATE, ["nodeEffect"])]


def _with_spec(found: Resource, spec: str) -> Resource:
    return Resource(found.uid, found.generation, found.created_ms, found.changed_ms, 0, found.labels, {}, spec)


def test_a_changed_service_starts_a_revision_and_relabels_before_it_stops_nothing_else() -> None:
    derived = deployed()
    steps = planned(derived, {key(DPU_SERVICE_CONFIGURATION, "hbn"): configuration("hbn", {"b": 3})})
    assert [step.action for step in steps] == [
        Action.DETACH,
        Action.STOP,
        Action.STOP,
        Action.RELABEL,
        Action.START,
        Action.START,
    ]


def test_a_change_without_node_effect_restarts_the_service_in_place() -> None:
    policy = {"upgradePolicy": {"applyNodeEffect": False}}
    derived = deployed()
    derived.apply({key(DPU_SERVICE_CONFIGURATION, "agent"): configuration("agent", {"b": 1}, **policy)})
    steps = planned(derived, {key(DPU_SERVICE_CONFIGURATION, "agent"): configuration("agent", {"b": 2}, **policy)})
    assert texts(steps) == ["restart DPUService dpf/agent"]
    old, new = steps[0].changes["helmChart"]
    assert (old["values"]["b"], new["values"]["b"]) == (1, 2)


def test_a_deployment_that_is_deleted_cuts_the_chain_before_it_removes_dpus() -> None:
    steps = planned(deployed(), {key(DPU_DEPLOYMENT, "dep"): None})
    actions = [step.action for step in steps]
    assert actions == [Action.CUT, Action.DETACH, Action.STOP, Action.STOP, Action.REMOVE]


def test_a_missing_prerequisite_changes_nothing() -> None:
    derived = deployed()
    assert planned(derived, {key(DPU_SERVICE_TEMPLATE, "hbn"): None}) == []
    held = deployment(dpus={"bfb": "none", "flavor": "flavor", "dpuSets": [{"nameSuffix": "all"}]})
    assert planned(derived, {key(DPU_DEPLOYMENT, "dep"): held}) == []


def test_stated_services_and_chains_are_part_of_the_plan() -> None:
    derived = Derived()
    spec = {"helmChart": {"source": {"repoURL": "https://charts", "version": "1"}}}
    chain: dict[str, Any] = {"template": {"spec": {"template": {"spec": {"switches": []}}}}}
    rows = {key(DPU_SERVICE, "svc"): row(spec), key(DPU_SERVICE_CHAIN, "chain"): row(chain)}
    assert [step.text for step in planned(derived, rows)] == [
        "start DPUService dpf/svc",
        "connect DPUServiceChain dpf/chain",
    ]
    derived.apply(rows)
    assert planned(derived, {}) == []
    assert [step.action for step in planned(derived, {key(DPU_SERVICE, "svc"): row(spec | {"paused": True})})] == [
        Action.RESTART
    ]
    assert [step.action for step in planned(derived, dict.fromkeys(rows))] == [Action.CUT, Action.STOP]


@settings(max_examples=60, deadline=None)
@given(st.lists(changes(), min_size=1, max_size=12), changes())
def test_a_plan_covers_each_changed_dpu_once_and_no_other(steps: list[dict[str, Any]], change: dict[str, Any]) -> None:
    derived = Derived()
    for step in steps:
        derived.apply(step)
    before, holders = dict(derived.derivation.dpus.winners), dict(derived.derivation.children.holders)
    found = [step for step in planned(derived, change) if "/DPU." in step.key]
    derived.apply(change)
    after = derived.derivation.dpus.winners
    changed = {each for each in (*before, *after) if before.get(each) != after.get(each)}
    kept = {each for each in before if derived.derivation.holds(holders.get(before[each].owner, ""))}
    held = {each for each in changed if (after.get(each) or before[each]).is_held} | kept
    assert len({step.key for step in found}) == len(found)
    assert {step.key for step in found} <= changed - held
    silent = changed - held - {step.key for step in found}
    assert all(each in before and each in after and before[each].spec == after[each].spec for each in silent)
    assert planned(derived, {}) == []
