"""Rollouts of DPUSets: waves, limits, bake time, failure budgets, and what operators request."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from eventstore.avro.codec import decode
from eventstore.reasons import Reason
from projections.resources import kinds
from projections.resources.conditions.rollouts import of_rollout
from projections.resources.conditions.world import World
from projections.resources.forecast import Forecast
from projections.resources.rollouts import planned
from projections.resources.rollouts.progress import progress
from projections.resources.rollouts.released import released
from projections.resources.state import ResourcesChange
from schemas.events import RolloutPlanned
from tests.support.rollouts import RACK, RollingFleet, key_of, set_spec

ON_DELETE = {"type": "OnDelete"}


def rolling(unavailable: int | str = 1) -> dict[str, object]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable}}


def installed(hosts: int, unavailable: int | str = 1, **annotations: str) -> RollingFleet:
    """A fleet with image one on all DPUs."""
    fleet = RollingFleet(hosts, log=None, **annotations)
    fleet.apply_set("one", strategy=rolling(unavailable))
    fleet.settle()
    assert fleet.counts == {"DONE": hosts}
    return fleet


def to_two(fleet: RollingFleet, unavailable: int | str = 1) -> None:
    fleet.apply_set("two", strategy=rolling(unavailable))
    fleet.plan()


def step(fleet: RollingFleet, *failing: int) -> list[int]:
    """Advance, and end what begins. Returns the numbers of the DPUs that began."""
    fleet.advance()
    begun = [int(key[-2:]) for key in fleet.hand_over()]
    for number in begun:
        fleet.install(fleet.dpu_key(number), fails=number in failing)
    return begun


def test_a_plan_is_that_of_its_first_slice_when_the_derivation_changes_between_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other readers of the derivation take over changes meanwhile."""
    monkeypatch.setattr(planned, "SLICE_DPUS", 1)
    fleet = RollingFleet(4, failure_domain=RACK)
    fleet.apply_set("one")
    fleet.settle()
    state, live = fleet.log.state, fleet.live
    whole = planned.set_plan(state, live.derivation, key_of(kinds.DPU_SET, "set"))
    planning = planned.Planning(state, live.derivation, key_of(kinds.DPU_SET, "set"))
    assert not planning.advance()
    fleet.log.delete(kinds.DPU_DEVICE, "d03")
    while not live.advance(state):
        pass
    while not planning.advance():
        pass
    assert planning.plan == whole and whole is not None and len(whole.dpus) == 4
    assert set(whole.domains.values()) == {"r0"}


def test_a_first_installation_waits_for_nothing() -> None:
    fleet = RollingFleet(5, waves="1,100%")
    fleet.apply_set("one")
    assert len(fleet.hand_over()) == 5, "before any plan is stated"
    fleet.plan()
    assert fleet.counts == {"UPDATING": 5}
    assert fleet.advance().code == "done"
    assert fleet.rollout.revisions[-1].result == "complete", "no DPU had another image before"


def test_a_rolling_update_keeps_the_limit_of_unavailable_dpus() -> None:
    fleet = installed(6, "34%")
    to_two(fleet, "34%")
    fleet.advance()
    assert fleet.updated() == [0, 1, 2], "34 % of 6 DPUs, rounded up"
    assert fleet.advance().code == "unchanged"
    fleet.hand_over()
    fleet.install(fleet.dpu_key(1))
    fleet.advance()
    assert fleet.updated() == [0, 1, 2, 3]
    fleet.settle()
    for number in (0, 2, 3):
        fleet.install(fleet.dpu_key(number))
    fleet.settle()
    assert fleet.counts == {"DONE": 6}
    assert fleet.rollout.revisions[-1].result == "complete"


def test_a_dpu_that_is_unavailable_anyway_takes_no_place() -> None:
    fleet = installed(4)
    fleet.break_down(fleet.dpu_key(2))
    to_two(fleet)
    fleet.advance()
    assert fleet.updated() == [2]
    assert fleet.advance().code == "unchanged", "the place is taken until the broken DPU is ready"


def test_on_delete_releases_a_dpu_that_is_deleted_and_no_other() -> None:
    fleet = RollingFleet(3)
    fleet.apply_set("one", strategy=ON_DELETE)
    fleet.settle()
    fleet.apply_set("two", strategy=ON_DELETE)
    fleet.plan()
    assert fleet.advance().code == "unchanged"
    assert fleet.log.delete(kinds.DPU, "h01-d01").code == "done"
    assert fleet.updated() == [1]
    again = fleet.log.delete(kinds.DPU, "h01-d01")
    assert (again.code, again.reason_code) == ("refused", "DPU_UP_TO_DATE")
    assert fleet.log.delete(kinds.DPU, "h09-d09").reason_code == "", "of an unknown DPU nothing changes"


def test_waves_wait_for_ready_dpus_and_for_the_bake_time() -> None:
    fleet = installed(10, 5, waves="1,30%", bake_time="10m")
    to_two(fleet, 5)
    assert step(fleet) == [0], "the first wave is one DPU"
    fleet.advance()
    assert fleet.rollout.baked_ms == fleet.log.now_ms + 600_000
    fleet.pass_time(500)
    assert step(fleet) == []
    fleet.pass_time(100)
    assert step(fleet) == [1, 2]
    fleet.advance()
    fleet.pass_time(600)
    assert step(fleet) == [3, 4, 5, 6, 7]
    assert step(fleet) == [8, 9]
    fleet.advance()
    assert fleet.rollout.revisions[-1].result == "complete"


def test_a_dpu_that_breaks_while_its_wave_bakes_begins_the_bake_time_anew() -> None:
    fleet = installed(4, 2, waves="1", bake_time="10m")
    to_two(fleet, 2)
    step(fleet)
    fleet.advance()
    fleet.pass_time(300)
    fleet.break_down(fleet.dpu_key(0))
    fleet.advance()
    assert fleet.rollout.baked_ms == 0
    fleet.pass_time(400)
    assert step(fleet) == []
    fleet.install(fleet.dpu_key(0))
    fleet.advance()
    assert fleet.rollout.baked_ms == fleet.log.now_ms + 600_000


def test_one_failure_domain_is_updated_at_a_time() -> None:
    fleet = installed(8, 8, failure_domain=RACK)
    to_two(fleet, 8)
    assert step(fleet, 3) == [0, 1, 2, 3]
    assert step(fleet) == [4, 5, 6, 7], "a DPU that failed does not stop the next domain: there is no failure budget"


def test_failures_over_the_budget_hold_the_rollout_until_it_is_resumed() -> None:
    fleet = installed(6, 3, waves="3", failure_budget="1")
    to_two(fleet, 3)
    assert step(fleet, 0, 1) == [0, 1, 2]
    fleet.advance()
    assert fleet.rollout.held == "2 DPUs have failed, and the failure budget is 1: h00-d00, h01-d01"
    assert fleet.advance().code == "unchanged"
    assert fleet.request("resume").code == "done"
    assert fleet.rollout.held == ""
    assert step(fleet, 3) == [3], "two places are taken by the DPUs that failed"
    assert step(fleet) == []
    assert fleet.rollout.held == "", "failures that were forgiven do not count again"


def test_waves_have_a_failure_budget_of_zero() -> None:
    fleet = installed(3, waves="1")
    to_two(fleet)
    step(fleet, 0)
    fleet.advance()
    assert fleet.rollout.held == "1 DPU has failed, and the failure budget is 0: h00-d00"


def test_a_new_image_ends_a_hold_and_begins_with_the_first_wave() -> None:
    fleet = installed(3, waves="1")
    to_two(fleet)
    step(fleet, 0)
    fleet.advance()
    fleet.apply_set("three", strategy=rolling())
    fleet.plan()
    assert (fleet.rollout.held, fleet.rollout.wave, fleet.rollout.revision) == ("", 0, 3)
    assert [each.result for each in fleet.rollout.revisions] == ["complete", "replaced", ""]
    assert step(fleet) == [0], "the DPU that failed is the first to be tried again"
    assert step(fleet) == [1]


def test_undo_returns_to_the_earlier_image_until_the_template_changes() -> None:
    fleet = installed(3, waves="1")
    to_two(fleet)
    step(fleet, 0)
    fleet.advance()
    outcome = fleet.request("undo")
    assert (outcome.code, outcome.reason) == ("done", "DPUSet dpf/set returns to revision 1")
    assert fleet.advance().code == "unchanged", "a plan from before the request releases nothing"
    fleet.plan()
    assert fleet.rollout.revision == 3
    wanted = fleet.live.derivation.dpus.winners[fleet.dpu_key(1)]
    assert wanted.spec["bfb"] == "one"
    assert step(fleet) == [0], "only one DPU has to go back"
    fleet.settle()
    assert fleet.counts == {"DONE": 3}
    assert json.loads(fleet.log.state.objects.rows[key_of(kinds.DPU_SET, "set")].spec)["dpuTemplate"]["spec"][
        "bfb"
    ] == {"name": "two"}, "the user's object stays as it is"
    to_two(fleet)
    assert fleet.rollout.pin, "the same template again keeps the pin"
    fleet.apply_set("three", strategy=rolling())
    fleet.settle()
    assert not fleet.rollout.pin
    assert fleet.updated("three") == [0, 1, 2]


def test_undo_twice_returns_to_the_stated_image() -> None:
    fleet = installed(2)
    to_two(fleet)
    fleet.settle()
    fleet.request("undo")
    fleet.settle()
    assert fleet.updated("one") == [0, 1]
    fleet.request("undo")
    fleet.settle()
    assert (fleet.updated("two"), fleet.rollout.pin) == ([0, 1], "")
    fleet.request("undo", 1)
    fleet.settle()
    assert fleet.updated("one") == [0, 1]


def test_a_paused_rollout_releases_nothing_but_first_installations() -> None:
    fleet = installed(3)
    to_two(fleet)
    assert fleet.request("pause").code == "done"
    assert fleet.request("pause").code == "unchanged"
    assert fleet.rollout.paused_by == "test"
    fleet.add_host(7)
    fleet.plan()
    assert (step(fleet), fleet.updated()) == ([7], [7])
    fleet.request("resume")
    assert step(fleet) == [0]
    again = fleet.request("resume")
    assert (again.code, again.reason) == ("unchanged", "DPUSet dpf/set is neither paused nor held")


def test_an_annotation_pauses_a_rollout() -> None:
    fleet = installed(2, paused="true")
    to_two(fleet)
    assert step(fleet) == []
    assert "dpuplane.io/rollout-paused" in fleet.request("resume").reason
    fleet.annotations = {}
    to_two(fleet)
    assert step(fleet) == [0]


def test_a_plan_that_is_older_than_its_objects_is_refused_and_releases_nothing() -> None:
    fleet = installed(2)
    position = fleet.log.delivered.end
    fleet.apply_set("two", strategy=rolling())
    (outcome,) = fleet.plan(position=position)
    assert (outcome.code, outcome.reason_code) == ("refused", "OUT_OF_ORDER")
    to_two(fleet)
    fleet.apply_set("three", strategy=rolling())
    assert fleet.advance().code == "unchanged", "the plan in force is older than the DPUSet"
    assert fleet.updated("two") == []
    fleet.settle()
    assert fleet.updated("three") == [0, 1]


def test_a_late_plan_does_not_bring_the_rollout_of_a_removed_set_back() -> None:
    fleet = installed(2)
    events = [decode(record.value) for record in fleet.log.delivered.records]
    late = next(event for event in reversed(events) if isinstance(event, RolloutPlanned))
    fleet.log.delete(kinds.DPU_SET, "set")
    fleet.plan()
    assert key_of(kinds.DPU_SET, "set") not in fleet.log.state.objects.rows
    assert not fleet.log.state.rollouts.rows
    outcome = fleet.log.append(late)
    assert (outcome.code, outcome.reason_code) == ("refused", Reason.RESOURCE_NOT_FOUND)
    assert not fleet.log.state.rollouts.rows and not fleet.log.state.dpu_rollouts.rows


def test_the_rollout_of_a_removed_set_takes_no_dpu_out_of_service() -> None:
    fleet = installed(2)
    to_two(fleet)
    fleet.log.delete(kinds.DPU_SET, "set")
    assert fleet.advance().code == "unchanged"
    assert fleet.updated("two") == []


def test_an_image_that_is_not_downloaded_takes_no_dpu_out_of_service() -> None:
    fleet = installed(2)
    fleet.log.observe(kinds.BFB, "two", '{"ready":false,"phase":"Downloading"}')
    to_two(fleet)
    assert (step(fleet), fleet.updated()) == ([], [])
    fleet.log.observe(kinds.BFB, "two", '{"ready":true,"phase":"Ready"}')
    assert step(fleet) == [0]


def test_a_part_of_a_plan_releases_nothing() -> None:
    fleet = installed(4, 4)
    fleet.apply_set("two", strategy=rolling(4))
    (outcome,) = fleet.plan()
    assert outcome.code == "done"
    row = replace(fleet.dpu(3), wanted="one/else")
    fleet.log.state.roll_out(ResourcesChange(dpu_rollouts={fleet.dpu_key(3): row}))
    assert fleet.advance().code == "unchanged", "the digest of the rows differs from that of the plan"


def test_a_dpu_that_leaves_its_set_leaves_the_plan() -> None:
    fleet = installed(3)
    fleet.log.delete(kinds.DPU_DEVICE, "d01")
    fleet.plan()
    assert fleet.counts == {"DONE": 2}
    fleet.log.delete(kinds.DPU_SET, "set")
    fleet.plan()
    assert not fleet.log.state.rollouts.rows
    assert not fleet.log.state.dpu_rollouts.rows


def test_what_was_installed_before_any_plan_is_kept_until_its_wave() -> None:
    fleet = RollingFleet(3, waves="1")
    fleet.apply_set("one")
    for dpu in fleet.hand_over():
        fleet.install(dpu)
    fleet.apply_set("two")
    assert fleet.hand_over() == [], "without a plan, a DPU keeps what is installed on it"
    fleet.plan()
    assert fleet.updated("one") == [0, 1, 2]
    assert step(fleet) == [0]
    assert released(fleet.log.state, fleet.dpu_key(1)) == fleet.dpu(1).released


def test_a_deployment_is_requested_as_one() -> None:
    fleet = RollingFleet(2)
    spec = {
        "dpus": {"bfb": "one", "flavor": "flavor", "dpuSets": [{"nameSuffix": "a", "dpuNodeSelector": {}}]},
        "services": {},
    }
    fleet.annotations = {"dpuplane.io/rollout-waves": "1"}
    fleet.log.apply(kinds.DPU_DEPLOYMENT, "dep", json.dumps(spec), annotations=[fleet.annotations])
    fleet.plan("dep-a")
    row = fleet.log.state.rollouts.rows[key_of(kinds.DPU_SET, "dep-a")]
    assert (row.waves, row.deployment) == (("1", "100%"), key_of(kinds.DPU_DEPLOYMENT, "dep"))
    assert fleet.request("pause", kind=kinds.DPU_DEPLOYMENT, name="dep").code == "done"
    assert fleet.log.state.rollouts.rows[key_of(kinds.DPU_SET, "dep-a")].paused_by == "test"
    assert fleet.request("pause", kind=kinds.DPU_DEPLOYMENT, name="none").reason_code == "RESOURCE_NOT_FOUND"


@pytest.mark.parametrize("revision", [1, 7])
def test_undo_needs_an_earlier_revision(revision: int) -> None:
    fleet = installed(1)
    outcome = fleet.request("undo", 0 if revision == 1 else revision)
    assert outcome.code == "refused"
    assert "revision" in outcome.reason


def test_a_statement_that_says_nothing_new_changes_nothing() -> None:
    fleet = installed(2)
    assert fleet.plan() == []
    fleet.log.apply(kinds.BFB, "two", json.dumps({"url": "http://images/two.bfb"}), labels=[{"a": "b"}])
    assert fleet.plan() == [], "the set does not refer to this image"
    fleet.log.apply(kinds.DPU_SET, "set", set_spec(strategy=rolling()), labels=[{"a": "b"}])
    (outcome,) = fleet.plan()
    assert outcome.code == "done", "the plan is stated again, because its DPUSet has changed"
    assert fleet.plan() == []


def test_progress_says_the_wave_and_why_a_rollout_stands_still() -> None:
    fleet = installed(4, 2, waves="1,50%")
    key = key_of(kinds.DPU_SET, "set")

    def said() -> tuple[str, str]:
        found = progress(fleet.log.state, key)
        assert found is not None
        return found.state, found.message

    assert said() == ("complete", "")
    fleet.apply_set("two", strategy=rolling(2))
    assert said() == ("progressing", "the plan of DPUSet dpf/set is being derived from its changed objects")
    fleet.plan()
    assert said() == ("progressing", "DPUSet dpf/set is in wave 1 of 3 (1): 0 of 4 DPUs have the wanted image")
    step(fleet, 0)
    assert said()[1].endswith("0 of 4 DPUs have the wanted image, 1 failed (h00-d00)")
    fleet.advance()
    state, message = said()
    assert state == "held"
    assert "is held in wave 1 of 3 (1): 1 DPU has failed, and the failure budget is 0: h00-d00" in message
    condition = of_rollout(key, World.of(fleet.log.state, fleet.live.derivation))
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "Error")
    assert [blame.key for blame in condition.blames] == [key, fleet.dpu_key(0)]
    fleet.request("resume")
    fleet.request("pause")
    assert said() == ("paused", "DPUSet dpf/set is paused by test: 0 of 4 DPUs have the wanted image")
    fleet.request("undo")
    fleet.settle()
    condition = of_rollout(key, World.of(fleet.log.state, fleet.live.derivation))
    assert condition is not None
    assert condition.holds
    assert condition.message == (
        "rolled back to bfb one, dpuFlavor flavor until the template changes; change the manifest to keep it"
    )
    fleet.apply_set("three", strategy=ON_DELETE)
    fleet.plan()
    assert said() == (
        "waiting",
        "4 DPUs of DPUSet dpf/set keep their image until somebody deletes them (strategy OnDelete)",
    )


def test_a_fault_in_an_annotation_is_a_condition_and_releases_nothing() -> None:
    fleet = installed(2)
    fleet.annotations = {"dpuplane.io/rollout-waves": "1,none"}
    fleet.apply_set("two", strategy=rolling())
    assert fleet.plan() == []
    assert step(fleet) == []
    condition = of_rollout(key_of(kinds.DPU_SET, "set"), World.of(fleet.log.state, fleet.live.derivation))
    assert condition is not None
    assert condition.message == (
        "DPUSet dpf/set is not rolled out: annotation dpuplane.io/rollout-waves: '1,none' must be numbers of DPUs or"
        " percentages, such as 1,1%,10%,100%"
    )


def test_a_rollout_without_a_plan_names_the_annotation_that_prevents_it() -> None:
    fleet = installed(2)
    fleet.annotations = {"dpuplane.io/rollout-bake-time": "soon"}
    fleet.apply_set("two", strategy=rolling())
    found = progress(fleet.log.state, key_of(kinds.DPU_SET, "set"))
    assert found is not None
    assert "bake-time\"]: 'soon' must be a duration" in found.message


def test_a_plan_names_the_wave_of_each_dpu_in_order() -> None:
    fleet = installed(4, failure_domain=RACK, waves="1,50%")
    rows = dict(fleet.log.state.objects.rows)
    key = key_of(kinds.DPU_SET, "set")
    newer = replace(rows[key], spec=set_spec("two", strategy=rolling()))
    decided = ResourcesChange(rollouts=dict(fleet.log.state.rollouts.rows))
    forecast = Forecast(rows, {key: newer}, decided)
    while not forecast.advance():
        pass
    steps = [(step.key, step.changes["wave"][1]) for step in forecast.steps()]
    waves = ["1 of 3 (1)", "2 of 3 (50%)", "3 of 3 (100%)", "3 of 3 (100%)"]
    assert steps == [(fleet.dpu_key(number), wave) for number, wave in enumerate(waves)]


@pytest.mark.parametrize(
    "template", ['{"bfb":5}', '{"bfb":[]}', '{"bfb":true}', '{"secureBoot":"yes"}', '{"bfb":null}']
)
def test_a_plan_whose_template_has_other_values_than_the_fields_have_is_refused(template: str) -> None:
    fleet = installed(2)
    rows = dict(fleet.log.state.rollouts.rows)
    events = [decode(record.value) for record in fleet.log.delivered.records]
    plan = next(event for event in reversed(events) if isinstance(event, RolloutPlanned))
    for field in ("template", "stated"):
        hostile = replace(plan, position=fleet.log.delivered.end, **{field: template})
        assert fleet.log.append(hostile).code == "refused"
    fleet.advance()
    assert fleet.log.state.rollouts.rows == rows


def test_a_plan_or_proposal_of_a_position_that_does_not_exist_yet_is_refused() -> None:
    fleet = installed(2)
    fleet.apply_set("two", strategy=rolling())
    told = fleet.plan(position=fleet.log.delivered.end + 1)
    assert [each.reason_code for each in told] == [Reason.OUT_OF_ORDER]
    assert [each.code for each in fleet.plan()] == ["done"]
    assert fleet.allocate("h00-d00", "c1", position=fleet.log.delivered.end + 1).reason_code == Reason.OUT_OF_ORDER
