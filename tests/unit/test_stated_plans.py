"""A plan of a rollout is held to what its objects state, and the rollout of a removed DPUSet leaves without a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.avro.codec import decode
from eventstore.folding.fold import Outcome
from eventstore.reasons import Reason
from projections.resources import kinds
from schemas.events import RolloutPlanned
from tests.support.rollouts import RollingFleet, key_of

IMAGES = [key_of(kinds.BFB, image) for image in ("one", "three", "two")]


def installed(hosts: int) -> RollingFleet:
    """A fleet with image one on all DPUs, and a DPUSet that states image two."""
    fleet = RollingFleet(hosts)
    fleet.apply_set("one")
    fleet.settle()
    fleet.apply_set("two")
    fleet.plan()
    return fleet


def last_plan(fleet: RollingFleet) -> RolloutPlanned:
    events = [decode(record.value) for record in fleet.log.delivered.records]
    return next(event for event in reversed(events) if isinstance(event, RolloutPlanned))


def state(fleet: RollingFleet, plan: RolloutPlanned, **fields: Any) -> Outcome:
    """State a plan now, with other fields."""
    return fleet.log.append(replace(plan, position=fleet.log.delivered.end, **fields))


@pytest.mark.parametrize(
    ("field", "value", "stated"),
    [
        ("max_unavailable", "2", "'1'"),
        ("strategy", "OnDelete", "'RollingUpdate'"),
        ("waves", ["1", "100%"], "'100%'"),
        ("bake_ms", 1, "'0'"),
        ("failure_budget", "1", "''"),
        ("is_paused", True, "'False'"),
    ],
)
def test_a_plan_with_another_strategy_than_its_set_states_is_refused(field: str, value: Any, stated: str) -> None:
    fleet = installed(2)
    before, plan = fleet.rollout, last_plan(fleet)
    outcome = state(fleet, plan, **{field: value})
    assert (outcome.code, outcome.reason_code) == ("refused", Reason.OUT_OF_ORDER)
    assert outcome.reason.startswith(f"{field}: ")
    assert outcome.reason.endswith(f" must be {stated}, as DPUSet dpf/set states")
    assert fleet.rollout == before
    assert state(fleet, plan).code == "unchanged"


def test_a_plan_of_a_set_without_a_usable_strategy_is_refused() -> None:
    fleet = installed(2)
    fleet.annotations = {"dpuplane.io/rollout-waves": "none"}
    fleet.apply_set("one")
    outcome = state(fleet, last_plan(fleet))
    assert outcome.reason.startswith("strategy: DPUSet dpf/set, whose plan this is, has none that can be used: ")


def test_a_plan_of_a_deployment_has_the_strategy_of_the_deployment() -> None:
    fleet = RollingFleet(2)

    def deploy(**dpus: Any) -> None:
        content = {"bfb": "one", "flavor": "flavor", "dpuSets": [{"nameSuffix": "a", "dpuNodeSelector": {}}], **dpus}
        spec = {"dpus": content, "services": {}}
        fleet.log.apply(kinds.DPU_DEPLOYMENT, "dep", json.dumps(spec), annotations=[fleet.annotations])

    fleet.annotations = {"dpuplane.io/rollout-waves": "1"}
    deploy()
    assert [outcome.code for outcome in fleet.plan("dep-a")] == ["done"]
    plan = last_plan(fleet)
    assert state(fleet, plan, max_unavailable="2").reason == (
        "max_unavailable: '2' must be '1', as DPUDeployment dpf/dep states"
    )
    assert "as DPUDeployment dpf/dep states" in state(fleet, plan, waves=["1", "50%"]).reason
    deploy(dpuSetStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}})
    assert [outcome.code for outcome in fleet.plan("dep-a")] == ["done"]
    assert state(fleet, last_plan(fleet), max_unavailable="1").code == "refused"
    deploy(dpuSetStrategy={"rollingUpdate": {"maxUnavailable": []}})
    assert "has none that can be used: dpus.dpuSetStrategy: " in state(fleet, last_plan(fleet)).reason


def test_a_removed_set_without_dpus_needs_no_plan() -> None:
    fleet = RollingFleet(0)
    fleet.apply_set("one")
    fleet.settle()
    assert fleet.rollout.strategy == "RollingUpdate"
    fleet.log.delete(kinds.DPU_SET, "set")
    assert not fleet.log.state.rollouts.rows
    assert fleet.plan() == []


def test_a_removed_deployment_without_dpus_needs_no_plan() -> None:
    fleet = RollingFleet(0)
    spec = {"dpus": {"bfb": "one", "flavor": "flavor", "dpuSets": [{"nameSuffix": "a"}]}, "services": {}}
    fleet.log.apply(kinds.DPU_DEPLOYMENT, "dep", json.dumps(spec))
    fleet.plan("dep-a")
    assert [*fleet.log.state.rollouts.rows] == [key_of(kinds.DPU_SET, "dep-a")]
    fleet.log.delete(kinds.DPU_DEPLOYMENT, "dep")
    assert not fleet.log.state.rollouts.rows
    assert fleet.plan("dep-a") == []


def test_a_set_that_a_deployment_does_not_list_any_more_ends_by_a_plan() -> None:
    fleet = RollingFleet(0)
    dpus: dict[str, Any] = {"bfb": "one", "flavor": "flavor", "dpuSets": [{"nameSuffix": "a"}]}
    fleet.log.apply(kinds.DPU_DEPLOYMENT, "dep", json.dumps({"dpus": dpus, "services": {}}))
    fleet.plan("dep-a")
    dpus["dpuSets"] = [{"nameSuffix": "b"}]
    fleet.log.apply(kinds.DPU_DEPLOYMENT, "dep", json.dumps({"dpus": dpus, "services": {}}))
    assert [outcome.code for outcome in fleet.plan("dep-a")] == ["done"]
    assert not fleet.log.state.rollouts.rows


def test_the_rollout_of_a_removed_set_ends_with_its_last_dpu_in_another_set() -> None:
    fleet = installed(2)
    fleet.apply_set("one", name="other")
    fleet.log.delete(kinds.DPU_SET, "set")
    assert [*fleet.log.state.rollouts.rows] == [key_of(kinds.DPU_SET, "set")], "it still has its DPUs"
    fleet.plan("other")
    assert [*fleet.log.state.rollouts.rows] == [key_of(kinds.DPU_SET, "other")]
    assert fleet.plan() == []


def test_an_image_that_only_the_pin_of_a_removed_set_names_leaves_with_its_rollout() -> None:
    fleet = installed(1)
    fleet.request("undo")
    assert "one" in fleet.rollout.pin
    fleet.log.delete(kinds.BFB, "one")
    assert key_of(kinds.BFB, "one") in fleet.log.state.objects.rows, "the pinned template names it"
    fleet.log.delete(kinds.DPU_DEVICE, "d00")
    fleet.plan()
    fleet.log.delete(kinds.DPU_SET, "set")
    assert not fleet.log.state.rollouts.rows
    assert [each for each in IMAGES if each in fleet.log.state.objects.rows] == IMAGES[1:]
