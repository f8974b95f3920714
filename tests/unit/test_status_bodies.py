"""What all statuses share: content and stamps; and the statuses of policies and holds."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.kubernetes.hold_status import hold_status, open_numbers
from projections.kubernetes.object_names import hold_name, hold_number, object_name
from projections.kubernetes.policy_status import policy_status
from projections.kubernetes.status_body import (
    Condition,
    Difference,
    Position,
    StatusBody,
    difference,
    position_of,
    shortened,
    stamped,
    transition_ms,
)
from projections.rules.policies import DEFAULT
from projections.sizes import MAX_BAKE_MS, read_size
from projections.staging import plan
from schemas.resources.hold import HoldStatus
from schemas.resources.rule_policy import (
    ALL,
    MAX_BAKE_S,
    MAX_STAGES,
    SIZE,
    PortRange,
    RulePolicySpec,
    RulePolicyStatus,
    Staging,
)
from tests.support.fleet import Fleet, Item

EARLY_MS, LATER_MS = 1_700_000_000_000, 1_700_000_060_000
POSITION = Position(1, 20)
MANY = 150


def status(*, nodes: int = 1, is_ready: bool = True, time_ms: int = EARLY_MS, fleet: int = 20) -> StatusBody:
    conditions = [Condition("Ready", is_ready, "Because", "it is so").document(1)]
    return StatusBody({"nodes": nodes, "conditions": conditions}, Position(1, fleet), time_ms)


# -- content and stamps


def test_a_status_differs_by_its_content_and_not_by_its_stamps() -> None:
    written = stamped(status(), {})
    assert difference(status(time_ms=LATER_MS, fleet=99), written) is Difference.NONE
    assert difference(status(nodes=2), written) is Difference.CONTENT
    assert difference(status(is_ready=False), written) is Difference.CONDITION
    assert difference(status(), {}) is Difference.CONDITION, "a new object gets its status at once"


def test_a_condition_keeps_its_time_while_its_status_is_unchanged() -> None:
    written = stamped(status(), {})
    assert written["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    same = stamped(status(nodes=2, time_ms=LATER_MS), written)
    assert transition_ms(same, "Ready") == EARLY_MS
    flipped = stamped(status(is_ready=False, time_ms=LATER_MS), same)
    assert transition_ms(flipped, "Ready") == LATER_MS
    assert transition_ms(flipped, "Other") == transition_ms({}, "Ready") == 0


positions = st.builds(Position, *[st.integers(0, 3)] * 4)


@given(positions, positions)
def test_a_position_is_refused_if_a_part_of_it_goes_back(one: Position, other: Position) -> None:
    assert position_of({"logPosition": one._asdict()}) == one
    assert not one.is_refused_after(one) and not one.is_refused_after(position_of({}))
    if one.generation > other.generation:
        assert not one.is_refused_after(other) and other.is_refused_after(one)
    elif one.generation == other.generation:
        goes_back = any(mine < theirs for mine, theirs in zip(one[1:], other[1:], strict=True))
        assert one.is_refused_after(other) == goes_back


def test_a_long_text_ends_in_dots_and_no_text_has_control_characters() -> None:
    assert shortened("one\ntwo\x7f", 9) == "one two "
    assert (shortened("abcdef", 6), shortened("abcdefg", 6)) == ("abcdef", "abc...")


# -- names


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True))
def test_every_zone_has_an_object_name_that_the_api_server_admits(zone: str) -> None:
    name = object_name(zone)
    assert len(name) <= 253
    for label in name.split("."):
        assert label and label[0].isalnum() and label[-1].isalnum()
        assert set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert object_name(name) == name


def test_zones_with_equal_slugs_have_different_objects() -> None:
    assert object_name("rack-7") == "rack-7"
    assert len({object_name(zone) for zone in ("Rack-7", "rack_7", "RACK-7", "rack-7")}) == 4


def test_a_hold_is_found_by_the_name_of_its_object() -> None:
    assert hold_number(hold_name(12)) == 12
    assert [hold_number(name) for name in ("hold-0", "hold-x", "mine", "hold-07")] == [None] * 4


# -- policies


def policy(fleet: Fleet, name: str, spec: RulePolicySpec) -> dict[str, Any]:
    addresses = fleet.state.slot_table.count_by_labels()
    found = policy_status(name, spec, fleet.state, addresses, POSITION, observed_generation=3, time_ms=EARLY_MS)
    written = stamped(found, {})
    filled = RulePolicyStatus.model_validate(written).model_dump(by_alias=True, exclude_none=True)
    assert difference(found, filled) is Difference.NONE
    return written


def ready(written: dict[str, Any]) -> tuple[str, str]:
    (condition,) = written["conditions"]
    return condition["status"], condition["reason"]


def test_a_policy_in_force_counts_its_zones_and_addresses_once() -> None:
    fleet = Fleet()
    fleet.describe("z0", {"tier": "web"})
    fleet.describe("z1", {})
    web = {"app": "web"}
    fleet.change(Item("a", "z0", "10.0.0.1", labels=web), Item("b", "z0", "10.0.0.1", "fd00::1", labels=web))
    fleet.change(Item("c", "z0", "10.0.0.2"))
    fleet.policy("p", ports=[80, 80], protocol="tcp", sources=web, zones={"tier": "web"})
    spec = RulePolicySpec(
        action="allow", protocol="tcp", ports=[PortRange(first=80, last=80)], sources=web, zones={"tier": "web"}
    )
    written = policy(fleet, "p", spec)
    assert (written["zones"], written["addresses"], ready(written)) == (1, 2, ("True", "Applied"))
    assert written["version"] == fleet.state.policies.rows["p"].version
    assert policy(fleet, DEFAULT, RulePolicySpec(action="allow"))["addresses"] == 3


def test_a_policy_that_fleet_does_not_have_as_stated_is_not_ready() -> None:
    fleet = Fleet()
    fleet.policy("p", action="drop")
    assert ready(policy(fleet, "p", RulePolicySpec(action="allow"))) == ("False", "NotApplied")
    assert ready(policy(fleet, "q", RulePolicySpec(action="allow"))) == ("False", "NotApplied")


def test_a_held_policy_names_its_hold() -> None:
    fleet = crowd()
    fleet.policy("p", priority=1, action="drop")
    written = policy(fleet, "p", RulePolicySpec(action="drop", priority=1))
    (number,) = open_numbers(fleet.state)
    assert (written["hold"], ready(written)) == (number, ("False", "Held"))


def test_a_staged_policy_is_not_ready_and_says_how_far_it_is() -> None:
    fleet = Fleet()
    fleet.describe("z0", {})
    spec = RulePolicySpec(action="drop", priority=5, staging=Staging(stages=["1", "10%", "100%"]))
    fleet.stage("p")
    assert ready(policy(fleet, "p", spec)) == ("False", "Staging")
    assert policy(fleet, "p", spec)["conditions"][0]["message"] == "the change is at stage 0 of 3"
    assert ready(policy(fleet, "q", spec)) == ("False", "NotApplied")
    fleet.request_stages("pause", "p", "dan")
    assert policy(fleet, "p", spec)["conditions"][0]["message"] == "the change is at stage 0 of 3, paused by dan"
    fleet.request_stages("resume", "p")
    fleet.name_dpus(1, "z0/d0")
    assert fleet.observe(0, named=1).code == "done"
    fleet.request_stages("undo", "p", "dan")
    written = policy(fleet, "p", spec)
    assert ready(written) == ("False", "Undoing") and "by request of dan" in written["conditions"][0]["message"]
    fleet.observe(1)
    assert ready(policy(fleet, "p", spec)) == ("False", "NotApplied")


def test_the_stages_of_an_object_have_the_limits_of_the_plane() -> None:
    assert (MAX_BAKE_S * 1_000, MAX_STAGES, ALL) == (MAX_BAKE_MS, plan.MAX_STAGES, plan.ALL)
    for size in ("0", "999999999", "0%", "100%", "101%", "1000000000", "", "-1", "1.5", "5%%"):
        assert (re.fullmatch(SIZE, size) is not None) == (read_size(size) is not None)


# -- holds


def crowd() -> Fleet:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(2 * MANY)))
    fleet.settle()
    return fleet


def hold(fleet: Fleet, number: int, written: dict[str, Any]) -> dict[str, Any]:
    found = hold_status(number, fleet.state, written, POSITION, observed_generation=1, time_ms=EARLY_MS)
    assert found is not None
    after = stamped(found, written)
    filled = HoldStatus.model_validate(after).model_dump(by_alias=True, exclude_none=True)
    assert difference(found, filled) is Difference.NONE, "the API server fills a default in"
    again = hold_status(number, fleet.state, filled, POSITION, observed_generation=1, time_ms=EARLY_MS)
    assert again == found
    return after


def shifted(fleet: Fleet, command_id: str = "") -> int:
    """A held change of many nodes; the number of its hold."""
    items = [Item(f"n{i}", "z0", f"10.1.0.{i + 1}") for i in range(MANY)]
    outcome = fleet.change(*items, command_id=command_id)
    assert outcome.code == "held"
    number: int = outcome.result["hold"]
    return number


def test_an_open_hold_shows_what_waits_and_for_whom() -> None:
    fleet = crowd()
    number = shifted(fleet, "c1")
    fleet.approve(number, "bob")
    written = hold(fleet, number, {})
    assert (written["hold"], written["state"], written["subject"]) == (number, "Open", "members")
    assert (written["nodeCount"], len(written["nodes"]), written["requestedBy"]) == (MANY, 20, "ann")
    assert written["approvedBy"] == ["bob"] and written["hash"] == fleet.state.holds.rows[str(number)].hash.hex()
    assert written["conditions"][0]["reason"] == "WaitsForApproval"


@pytest.mark.parametrize(("end", "state"), [("approve", "Approved"), ("reject", "Rejected")])
def test_a_hold_of_members_ends_with_its_details(end: str, state: str) -> None:
    fleet = crowd()
    number = shifted(fleet, "c1")
    open_ = hold(fleet, number, {})
    if end == "approve":
        assert [fleet.approve(number, actor).code for actor in ("bob", "cid")] == ["done", "done"]
    else:
        assert fleet.reject(number).code == "done"
    ended = hold(fleet, number, open_)
    assert (ended["state"], ended["nodeCount"], ended["message"]) == (state, MANY, open_["message"])
    assert ended["conditions"][0]["status"] == "True"
    fleet.state.command_outcomes.rows.clear()
    assert hold(fleet, number, ended)["state"] == state, "a written final state stays when fleet has forgotten it"


@pytest.mark.parametrize(("end", "state"), [("approve", "Approved"), ("reject", "Rejected"), ("replace", "Ended")])
def test_a_hold_of_a_policy_ends_by_approval_rejection_or_a_later_edit(end: str, state: str) -> None:
    fleet = crowd()
    number = fleet.policy("p", priority=1, action="drop").result["hold"]
    open_ = hold(fleet, number, {})
    assert open_["subject"] == "policy"
    match end:
        case "reject":
            fleet.reject(number)
        case "replace":
            fleet.policy("p", priority=2, action="allow")
        case _:
            assert [fleet.approve(number, actor).code for actor in ("bob", "cid")] == ["done", "done"]
    assert hold(fleet, number, open_)["state"] == state


def test_an_ended_hold_without_an_earlier_status_and_an_unknown_number() -> None:
    fleet = crowd()
    number = shifted(fleet)
    assert hold_status(number + 1, fleet.state, {}, POSITION, observed_generation=1, time_ms=EARLY_MS) is None
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(MANY)))
    assert number not in open_numbers(fleet.state)
    ended = hold(fleet, number, {})
    assert (ended["hold"], ended["state"]) == (number, "Ended")
