"""Staged changes of policies: two live lists per zone, and how the fold goes from stage to stage."""

from __future__ import annotations

import pytest

from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import delta, table
from projections.installs.rows import InstallsState
from projections.rules.rule import Rule
from projections.staging.course import PATIENCE_MS
from projections.views.staging import PolicyStageProgress
from tests.support.fleet import (
    Device,
    Fleet,
    Item,
    actual_table,
    applied,
    digest_from_scratch,
    expected_table,
    saved_bytes,
)
from tests.support.zones import ZonesPartition

DROP = Rule(5, "drop", "any", ())


def made(nodes: int = 4) -> Fleet:
    """Two zones, nodes of which half have the label app=web, and no limits of withdrawals."""
    fleet = Fleet()
    fleet.unlimited()
    items = [
        Item(f"n{i}", f"z{i % 2}", f"10.0.0.{i + 1}", labels={"app": "web"} if i % 2 else {}) for i in range(nodes)
    ]
    for zone in ("z0", "z1"):
        fleet.change(*(item for item in items if item.zone == zone))
    return fleet


def tables(state: FleetState, zone: str = "z0") -> dict[int, Device]:
    return {stage: actual_table(state, zone, stage) for stage in state.stages_of(zone)}


def staged(fleet: Fleet) -> None:
    """Stage a drop of web nodes, and release its first stage, which has DPU z0/d0."""
    assert fleet.stage("p", sources={"app": "web"}).code == "done"
    assert fleet.name_dpus(1, "z0/d0").code == "done"
    assert fleet.observe(0, named=1).code == "done"


def test_a_named_dpu_counts_although_no_relay_reports_it_any_more() -> None:
    fleet, zones = made(), ZonesPartition()
    zones.register("d0", zone="z0")
    zones.register("d1", zone="z0")
    staged(fleet)
    change = fleet.state.staged
    assert change is not None
    for waited_ms, waiting, failed in ((0, 1, []), (PATIENCE_MS, 0, ["z0/d0"])):
        progress = PolicyStageProgress(fleet.state, change, epoch=1, now_ms=change.since_ms + waited_ms)
        progress.add_zone("z0", zones.state, InstallsState())
        assert (progress.total, progress.waiting, [*progress.failed]) == (2, waiting, failed)


def test_a_dpu_beyond_the_released_stage_never_has_the_new_list() -> None:
    fleet = made()
    before = actual_table(fleet.state, "z0")
    fleet.stage("p", sources={"app": "web"})
    fleet.name_dpus(1, "z0/d0")
    assert fleet.state.stages_of("z0") == [0], "no stage is released"
    assert actual_table(fleet.state, "z0") == before
    fleet.observe(0, named=1)
    assert fleet.state.stage_of("z0", "d0") == 1
    assert fleet.state.stage_of("z0", "d1") == 0
    found = tables(fleet.state)
    assert found[0] == before and DROP in found[1]
    assert fleet.state.stages_of("z1") == [0]
    assert "p" not in fleet.state.policies.rows, "the policy in force changes with the last stage"


def test_nodes_that_join_or_leave_meanwhile_are_in_both_lists() -> None:
    fleet = made()
    staged(fleet)
    fleet.change(Item("n8", "z0", "10.0.1.1", labels={"app": "web"}), Item("n9", "z0", "10.0.1.2"))
    fleet.leave("n1")
    assert fleet.state.staged is not None and fleet.state.staged.after is not None
    with_change = [*fleet.state.policies.rows.values(), fleet.state.staged.after]
    found = tables(fleet.state)
    assert found == {0: expected_table(fleet.state, "z0"), 1: expected_table(fleet.state, "z0", with_change)}
    assert any(str(net) == "10.0.1.1/32" for net in found[1][DROP])


def test_the_stages_follow_each_other_until_all_dpus_have_the_change() -> None:
    fleet = made()
    staged(fleet)
    fleet.name_dpus(2, "z0/d1", "z1/d0")
    fleet.observe(1, named=2)
    assert fleet.state.stages_of("z0") == [0, 1, 2] and fleet.state.stages_of("z1") == [0, 2]
    fleet.observe(2)
    assert fleet.state.staged is not None and fleet.state.staged.is_everywhere
    assert "p" in fleet.state.policies.rows
    expected = expected_table(fleet.state, "z0")
    assert tables(fleet.state) == {0: expected, 1: expected, 2: expected}
    version = table(fleet.state, "z0").version
    assert {table(fleet.state, "z0", stage).version for stage in (0, 1, 2)} == {version}
    fleet.observe(3)
    assert fleet.state.staged.result == "complete"
    assert fleet.state.stages_of("z0") == [0] and table(fleet.state, "z0").version == version


def test_deltas_lead_each_dpu_from_any_version_to_its_list() -> None:
    fleet = made()
    version, had = table(fleet.state, "z0").version, actual_table(fleet.state, "z0")
    staged(fleet)
    step = delta(fleet.state, "z0", version, 1)
    assert step is not None
    canary, at = applied(had, step), step.to_version
    assert canary == actual_table(fleet.state, "z0", 1) and digest_from_scratch(canary) == step.digest
    fleet.request_stages("undo", "p")
    back = delta(fleet.state, "z0", at, 1)
    assert back is not None and applied(canary, back) == had
    same = delta(fleet.state, "z0", version)
    assert same is not None and not same.steps, "DPUs without the change get no prefix"
    assert same.to_version == back.to_version
    fleet.observe(1)
    assert delta(fleet.state, "z0", at) is None, (
        "the version is of a list that the zone has no more: it needs a snapshot"
    )
    fresh = delta(fleet.state, "z0", version)
    assert fresh is not None and not fresh.steps


@pytest.mark.parametrize("is_everywhere", [False, True])
def test_undo_returns_all_dpus_to_the_policy_before(is_everywhere: bool) -> None:
    fleet = made()
    fleet.policy("p", priority=5, action="drop", sources={"app": "db"})
    before = actual_table(fleet.state, "z0")
    staged(fleet)
    if is_everywhere:
        fleet.observe(1)
        fleet.observe(2)
        assert fleet.state.policies.rows["p"].sources == {"app": "web"}
    outcome = fleet.request_stages("undo", "p")
    assert outcome.code == "done" and outcome.reason.startswith("all DPUs return to version")
    assert all(found == before for found in tables(fleet.state).values())
    assert fleet.state.policies.rows["p"].sources == {"app": "db"}
    stage = 3 if is_everywhere else 1
    assert fleet.observe(stage, waiting=1).code == "unchanged"
    fleet.now_ms += PATIENCE_MS
    assert fleet.observe(stage, waiting=1).code == "done"
    assert fleet.state.staged is not None and fleet.state.staged.result == "undone"
    assert actual_table(fleet.state, "z0") == before


def test_a_failed_dpu_holds_the_change_with_a_sentence_that_names_it() -> None:
    fleet = made()
    staged(fleet)
    fleet.observe(1, waiting=0, failed={"z0/d0": "refused: DEVICE: no room"})
    held = fleet.state.staged
    assert held is not None and held.stage == 1
    assert held.held == "1 DPU has failed, and the failure budget is 0: 'z0/d0' (refused: DEVICE: no room)"
    assert fleet.observe(1).code == "unchanged", "a held change does not advance"
    assert fleet.request_stages("resume", "p").code == "done"
    fleet.observe(1, failed={"z0/d0": "refused: DEVICE: no room"})
    assert fleet.state.staged is not None and fleet.state.staged.stage == 2, "a forgiven DPU does not count again"


def test_a_stage_lasts_for_its_bake_time_and_a_paused_change_does_not_advance() -> None:
    fleet = made()
    fleet.stage("p", bake_ms=5_000)
    fleet.name_dpus(1, "z0/d0")
    fleet.observe(0, named=1)
    fleet.now_ms += 4_999
    assert fleet.observe(1).code == "unchanged"
    fleet.request_stages("pause", "p", "bob")
    fleet.now_ms += 1
    assert fleet.observe(1).code == "unchanged"
    assert fleet.state.staged is not None and fleet.state.staged.paused_by == "bob"
    assert fleet.request_stages("pause", "p").reason == "name: the staged change of 'p' is paused already"
    fleet.request_stages("resume", "p")
    assert fleet.observe(1).code == "done"
    assert fleet.state.staged.stage == 2


def test_the_whole_change_counts_against_the_budgets_when_it_begins() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}", labels={"app": "web"}) for i in range(1_000)))
    fleet.settle()
    fleet.change(Item("m", "z0", "10.1.0.1"))
    outcome = fleet.stage("p", sources={"app": "web"})
    assert outcome.code == "held" and fleet.state.staged is None
    hold = outcome.result["hold"]
    assert fleet.stage("p", sources={"app": "web"}).result["hold"] == hold
    fleet.approve(hold, "bob")
    assert fleet.approve(hold, "eve").code == "done"
    assert fleet.state.staged is not None and fleet.state.staged.stage == 0
    assert not fleet.state.holds.rows and not fleet.state.stage_plans.rows
    assert "p" not in fleet.state.policies.rows
    assert fleet.state.window("denied-by-change", fleet.state.list_number("z0")).spent(fleet.now_ms) == 0, "approved"


def test_a_change_that_would_deny_more_than_when_it_began_is_held() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(1_000)))
    fleet.settle()
    fleet.change(Item("m", "z0", "10.1.0.1", labels={"app": "web"}))
    staged(fleet)
    fleet.observe(1)
    web = [Item(f"w{i}", "z0", f"10.2.0.{i + 1}", labels={"app": "web"}) for i in range(120)]
    assert fleet.change(*web).code == "done"
    fleet.observe(2)
    row = fleet.state.staged
    assert row is not None and (row.stage, row.phase) == (2, "held")
    assert row.held == "121 addresses would be denied at once, over the denied-by-change budget"
    fleet.request_stages("resume", "p")
    fleet.observe(2)
    assert fleet.state.staged is not None and fleet.state.staged.held, "one operator cannot pass the budget"
    fleet.unlimited()
    fleet.request_stages("resume", "p")
    fleet.observe(2)
    assert fleet.state.staged.is_everywhere
    assert fleet.state.window("denied-by-change", fleet.state.list_number("z0")).spent(fleet.now_ms) >= 121


def test_a_hold_with_other_stages_is_another_hold() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}", labels={"app": "web"}) for i in range(1_000)))
    fleet.settle()
    first = fleet.stage("p", sources={"app": "web"}).result["hold"]
    second = fleet.policy("p", priority=5, action="drop", sources={"app": "web"}).result["hold"]
    assert second != first, "otherwise approvals of a staged change would apply it at once"
    assert [*fleet.state.holds.rows] == [str(second)] and not fleet.state.stage_plans.rows


def test_edits_that_a_staged_change_excludes_are_refused() -> None:
    fleet = made()
    staged(fleet)
    for outcome in (
        fleet.policy("p", action="drop"),
        fleet.delete_policy("p"),
        fleet.stage("q"),
        fleet.describe("z0", {"row": "1"}),
    ):
        assert (outcome.code, outcome.reason_code) == ("refused", "POLICY_STAGED"), outcome
    assert fleet.policy("q", priority=7, action="drop", sources={"app": "db"}).code == "done"
    assert fleet.limit("z0", 3, 4).code == "done"
    fleet.request_stages("undo", "p")
    assert fleet.stage("q", sources={"app": "web"}).code == "done", "it ends the one that is rolled back"
    assert fleet.state.staged is not None and fleet.state.staged.policy == "q"


def test_statements_about_another_stage_or_change_have_no_effect() -> None:
    fleet = made()
    staged(fleet)
    for outcome in (
        fleet.observe(0),
        fleet.observe(2),
        fleet.observe(1, change=7),
        fleet.name_dpus(1, "z0/d5"),
        fleet.name_dpus(2, "z0/d5", change=7),
        fleet.name_dpus(3, "z0/d5"),
        fleet.observe(1, named=4),
    ):
        assert (outcome.code, outcome.reason_code) == ("refused", "OUT_OF_ORDER"), outcome
    assert fleet.name_dpus(2, *(f"z0/d{i}" for i in range(11))).reason_code == "LIMIT_REACHED"
    assert fleet.name_dpus(2, "z0/d0").code == "unchanged", "it keeps its stage"


def test_a_stage_may_be_the_zones_with_a_label() -> None:
    fleet = made()
    fleet.describe("z0", {"row": "a"})
    fleet.stage("p", ("row=a", "100%"), sources={"app": "web"})
    assert fleet.name_dpus(1, "z1/d0").reason_code == "OUT_OF_ORDER"
    assert fleet.name_dpus(1, "z0/d0", "z0/d1").code == "done"


def test_a_policy_can_be_deleted_in_stages() -> None:
    fleet = made()
    fleet.policy("p", priority=5, action="drop", sources={"app": "web"})
    assert fleet.stage("none", is_deleted=True).reason_code == "POLICY_NOT_FOUND"
    assert fleet.stage("p", is_deleted=True).code == "done"
    fleet.name_dpus(1, "z0/d0")
    fleet.observe(0, named=1)
    found = tables(fleet.state)
    assert DROP in found[0] and DROP not in found[1]
    fleet.observe(1)
    fleet.observe(2)
    fleet.observe(3)
    assert "p" not in fleet.state.policies.rows and DROP not in actual_table(fleet.state, "z0")


def test_a_state_loaded_from_its_rows_has_the_same_lists() -> None:
    fleet = made()
    fleet.describe("z0", {"row": "a"})
    staged(fleet)
    fleet.change(Item("n8", "z0", "10.0.1.1", labels={"app": "web"}))
    loaded = fleet.reload()
    assert saved_bytes(loaded) == saved_bytes(fleet.state)
    assert loaded.stages_of("z0") == [0, 1]
    for stage in (0, 1):
        now, then = table(loaded, "z0", stage), table(fleet.state, "z0", stage)
        assert (now.version, now.digest) == (then.version, then.digest)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (("100%",), "stages: 1 stages must be from 2 to 10"),
        (("1", "10%"), "stages: the last one, and no other, must be 100%"),
        (("10%", "5%", "100%"), "stages: must not decrease"),
        (("0", "100%"), "stages[0]: '0' must be a number, a percentage, or KEY=VALUE of zones"),
        (("a b=1", "100%"), "stages key: 'a b'"),
    ],
)
def test_stages_that_make_no_sense_are_refused(stages: tuple[str, ...], said: str) -> None:
    outcome = made().stage("p", stages)
    assert outcome.code == "refused" and outcome.reason.startswith(said)
