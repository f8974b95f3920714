"""Budgets cannot be bypassed: they limit the share of a settled fleet that one person may remove."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventstore.folding.fold import Outcome
from projections.fleet.withdrawals.budgets import (
    BUDGET_KINDS,
    BUDGET_WINDOW_MS,
    DEFAULT_BUDGETS,
    DENIED_BY_CHANGE,
    DENIED_BY_LEAVE,
    Budget,
)
from projections.fleet.withdrawals.settled_levels import (
    NO_LEVELS,
    SETTLED_MS,
    STEP_MS,
    BudgetBase,
    LevelHistory,
    base_of,
    merged_levels,
)
from schemas.events import BudgetSet, HoldApproved
from tests.support.fleet import Fleet, Item, actual_table, envelope, is_allowed, saved_bytes

REAL = 60
LEAVES, CHANGES = 6, 3
"""Numbers of real addresses that may be denied by leaves (10 %) and by changes (5 %)."""


def real(i: int, **changes: Any) -> Item:
    return Item(f"n{i}", "z0", f"10.0.0.{i + 1}", labels={"side": "left" if i % 2 else "right"})._replace(**changes)


def settled() -> Fleet:
    fleet = Fleet()
    fleet.budget(DENIED_BY_LEAVE, 100, 5)
    fleet.budget(DENIED_BY_CHANGE, 50, 3)
    fleet.describe("z1", {"tier": "gold"})
    fleet.change(*(real(i) for i in range(REAL)))
    fleet.settle()
    return fleet


def allowed(fleet: Fleet) -> set[str]:
    """The addresses of real nodes that zone z0 allows."""
    device = actual_table(fleet.state, "z0")
    return {
        item.address for item in map(real, range(REAL)) if is_allowed(device, IPv4Address(item.address), ("udp", 9))
    }


# --- actions of one person --------------------------------------------------------------------------------------------


def join(fleet: Fleet, many: int, which: int) -> None:
    """Join invented nodes. Some have the address of a real node."""
    first = len(fleet.state.members.rows)
    side = ("left", "right", "evil")[which % 3]
    items = [
        Item(f"x{first}-{k}", "z0", f"11.{k // 250}.{which}.{k % 250 + 1}", labels={"side": side})
        for k in range(20 * many)
    ]
    if which % 2:
        items.append(Item(f"y{first}", "z0", f"10.0.0.{which + 1}", labels={"side": "evil"}))
    fleet.change(*items)


def leave(fleet: Fleet, many: int, which: int) -> None:
    names = sorted(name for name, row in fleet.state.members.rows.items() if not row.held)
    picked = names[which : which + many]
    if picked:
        fleet.leave(*picked, state=1 + which % 3)


def change(fleet: Fleet, many: int, which: int) -> None:
    there = [i for i in range(which, min(which + many, REAL)) if f"n{i}" in fleet.state.members.rows]
    address = {"address": f"10.2.0.{which + 1}"} if which % 2 else {"labels": {"side": "evil"}}
    if there:
        fleet.change(*(real(i, **address) for i in there))


def edit(fleet: Fleet, many: int, which: int) -> None:
    sources = ({}, {"side": "left"}, {"side": "evil"})[many % 3]
    zones = ({}, {"tier": "gold"})[which % 2]
    name, action = ("p", "q", "default")[which % 3], ("drop", "allow")[many % 2]
    fleet.policy(name, priority=many % 4, action=action, sources=sources, zones=zones, actor="eve")


def delete(fleet: Fleet, _: int, which: int) -> None:
    fleet.delete_policy(("p", "q", "default")[which % 3], "eve")


def relabel(fleet: Fleet, many: int, which: int) -> None:
    fleet.describe(f"z{which % 3}", ({}, {"tier": "gold"}, {"tier": "none"})[many % 3], "eve")


def raise_budget(fleet: Fleet, many: int, which: int) -> None:
    kind = BUDGET_KINDS[which % len(BUDGET_KINDS)]
    fleet.apply(BudgetSet(envelope("eve"), kind, 50 * many, 10 * many))


def approve(fleet: Fleet, _: int, which: int) -> None:
    """Approve every hold under each of the person's roles."""
    for hold in list(fleet.state.holds.rows.values()):
        for role in ("", "approver/", "operator/", "?"):
            fleet.apply(HoldApproved(envelope(f"{role}eve"), hold.id, hold.hash))


def reject(fleet: Fleet, _: int, which: int) -> None:
    for hold in list(fleet.state.holds.rows)[:which]:
        fleet.reject(int(hold), "eve")


def wait(fleet: Fleet, many: int, _: int) -> None:
    fleet.now_ms += 2_000 * many


ACTIONS: tuple[Callable[[Fleet, int, int], None], ...] = (
    *(join, join, leave, leave, change, edit, edit),
    *(delete, relabel, raise_budget, approve, reject, wait),
)
actions = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 20), st.integers(0, 59)), max_size=14)


@settings(max_examples=150, deadline=None)
@given(actions)
def test_one_person_denies_no_more_settled_addresses_than_the_budgets(
    done: list[tuple[Callable[[Fleet, int, int], None], int, int]],
) -> None:
    fleet = settled()
    before = allowed(fleet)
    assert len(before) == REAL
    for action, many, which in done:
        action(fleet, many, which)
    lost = before - allowed(fleet)
    assert len(lost) <= LEAVES + CHANGES
    fleet.state = fleet.reload()
    assert before - allowed(fleet) == lost


def test_invented_joins_do_not_enlarge_a_budget() -> None:
    fleet = settled()
    limits = [fleet.leave(*(f"n{i}" for i in range(LEAVES + 1))).code]
    for batch in range(20):
        fleet.change(*(Item(f"x{batch}-{k}", "z0", f"11.{batch}.{k // 250}.{k % 250 + 1}") for k in range(1_000)))
        fleet.now_ms += STEP_MS // 4
    limits.append(fleet.leave(*(f"n{i}" for i in range(LEAVES + 1, 2 * LEAVES + 2))).code)
    assert limits == ["held", "held"]
    assert fleet.policy("no", action="drop").code == "held"
    fleet.now_ms += SETTLED_MS + STEP_MS
    assert fleet.leave(*(f"n{i}" for i in range(2 * LEAVES + 2, REAL))).code == "done", "joins count after an hour"


@pytest.mark.parametrize(("nodes", "may_leave"), [(1, 1), (3, 2), (4, 2), (9, 4), (100, 50), (3_000, 1_000)])
def test_a_fleet_of_any_size_keeps_half_of_its_nodes_in_ten_minutes(nodes: int, may_leave: int) -> None:
    """In a small fleet one node may leave without approvals."""

    def left(count: int) -> str:
        fleet = Fleet()
        for first in range(0, nodes, 1_000):
            batch = range(first, min(first + 1_000, nodes))
            fleet.change(*(Item(f"n{k}", "z0", f"10.0.{k // 250}.{k % 250 + 1}") for k in batch))
        return str(fleet.leave(*(f"n{i}" for i in range(count))).code)

    assert left(may_leave) == "done"
    assert may_leave == nodes or left(may_leave + 1) == "held"


def test_a_drop_of_all_addresses_of_a_small_plane_is_held() -> None:
    fleet = Fleet()
    fleet.change(*(real(i) for i in range(9)))
    assert fleet.policy("no", action="drop").code == "held"


# --- budgets ----------------------------------------------------------------------------------------------------------


def looser(fleet: Fleet, kind: str = DENIED_BY_CHANGE, permille: int = 1_000, min_addresses: int = 3) -> Outcome:
    return fleet.apply(BudgetSet(envelope("approver/eve"), kind, permille, min_addresses))


def test_a_looser_budget_takes_effect_after_two_approvals() -> None:
    fleet = settled()
    waiting = fleet.policy("no", action="drop")
    outcome = looser(fleet)
    looser_than = "denied-by-change would be looser with 1000 per mille and at least 3 than with 50 and 3"
    reason = f"budget: {looser_than}; it waits for approval"
    assert (outcome.code, outcome.reason) == ("held", reason)
    assert looser(fleet) == outcome
    assert fleet.policy("no", action="drop") == waiting, "a budget that waits has no effect"
    assert fleet.approve(outcome.result["hold"], "operator/eve").code == "refused"
    fleet.state = fleet.reload()
    approved = [fleet.approve(outcome.result["hold"], actor).code for actor in ("bob", "bob", "cid")]
    assert approved == ["done", "unchanged", "done"]
    assert fleet.state.budgets.rows[DENIED_BY_CHANGE] == Budget(DENIED_BY_CHANGE, 1_000, 3)
    assert list(fleet.state.holds.rows) == [str(waiting.result["hold"])], "the other hold stays open"


def test_a_tighter_budget_takes_effect_at_once_and_ends_held_ones() -> None:
    fleet = settled()
    looser(fleet)
    assert looser(fleet, permille=49).code == "done"
    assert fleet.state.holds.rows == {}
    for permille, min_addresses in ((60, 0), (0, 4)):
        held = looser(fleet, permille=permille, min_addresses=min_addresses)
        assert held.code == "held", "a budget that is looser in one respect needs approvals"
    assert len(fleet.state.holds.rows) == 1
    assert fleet.reject(held.result["hold"]).code == "done"
    assert (fleet.state.holds.rows, fleet.state.budgets.rows[DENIED_BY_CHANGE].permille) == ({}, 49)
    assert looser(fleet, "allowed-by-join", 500, 0).code == "done", "any limit is tighter than none"
    assert looser(fleet, "allowed-by-join", 1_000, 0).code == "held"


# --- levels -----------------------------------------------------------------------------------------------------------

steps = st.lists(st.tuples(st.integers(0, 40 * STEP_MS), st.integers(0, 9)), min_size=1, max_size=12)


@given(steps, st.integers(0, 2 * SETTLED_MS))
@example([(0, 1), (STEP_MS, 0)], SETTLED_MS)
def test_the_base_is_the_smallest_level_at_the_end_of_a_minute_of_the_last_hour(
    changes: list[tuple[int, int]], later_ms: int
) -> None:
    levels, sampled_ms, level, now_ms, history = NO_LEVELS, 0, 0, 10 * SETTLED_MS, list[tuple[int, int]]()
    for after_ms, becomes in changes:
        now_ms += after_ms
        if now_ms - now_ms % STEP_MS > sampled_ms:
            levels, sampled_ms = levels.sampled(sampled_ms, level), now_ms - now_ms % STEP_MS
        level = becomes
        history.append((now_ms, level))
    now_ms += later_ms
    ends = range((now_ms - SETTLED_MS) // STEP_MS * STEP_MS, now_ms + 1, STEP_MS)
    at_ends = [next((count for at_ms, count in reversed(history) if at_ms < end), 0) for end in ends]
    found = base_of(levels, sampled_ms=sampled_ms, level=level, now_ms=now_ms)
    assert found.settled == min(*at_ends, level) if at_ends else True
    assert found.least == min(filter(None, (*at_ends, level)), default=0)
    assert len(levels.samples) <= SETTLED_MS // STEP_MS + 2


def test_addresses_charged_to_a_budget_still_count_in_its_base() -> None:
    levels = LevelHistory(((0, 100),))
    now_ms = SETTLED_MS + BUDGET_WINDOW_MS
    assert base_of(levels, sampled_ms=0, level=90, now_ms=now_ms, spent=[(now_ms - 5, 10)]) == BudgetBase(90, 90)
    spent = [(now_ms - 120_000, 10)]
    assert base_of(levels, sampled_ms=now_ms - STEP_MS, level=90, now_ms=now_ms, spent=spent) == BudgetBase(100, 100)


def test_merged_lists_have_the_smaller_of_their_levels() -> None:
    one, other = LevelHistory(((0, 10), (60_000, 30))), LevelHistory(((60_000, 20), (120_000, 0), (180_000, 40)))
    assert merged_levels([one, one]) == one
    assert (
        merged_levels([one, other])
        == merged_levels([other, one])
        == LevelHistory(((0, 10), (60_000, 20), (120_000, 30)))
    )


def test_samples_with_future_times_are_moved_to_the_time_of_the_correction() -> None:
    levels = LevelHistory(((0, 10), (120_000, 7), (240_000, 30)))
    corrected = LevelHistory(((0, 10), (60_000, 7)))
    assert levels.rewind(60_000) == corrected.rewind(60_000) == corrected
    assert levels.rewind(300_000) == levels
    assert corrected.sampled(60_000, 40) == corrected
    assert corrected.sampled(60_000, 5) == LevelHistory(((0, 10), (60_000, 5)))
    fleet = settled()
    fleet.limit("z0", 1, 1)
    fleet.fold.rewind(fleet.state, fleet.now_ms - SETTLED_MS)
    fleet.now_ms -= SETTLED_MS
    assert fleet.leave(*(f"n{i}" for i in range(LEAVES))).code == "held", (
        "the time of a fast clock does not settle a level"
    )


def test_an_unchanged_list_takes_no_sample() -> None:
    fleet = settled()
    fleet.limit("z0", 1, 1)
    before = saved_bytes(fleet.state)["levels"]
    for _ in range(5):
        fleet.now_ms += 2 * STEP_MS
        fleet.limit("z0", 1, 1)
    assert saved_bytes(fleet.state)["levels"] == before
    assert DEFAULT_BUDGETS.keys() == set(BUDGET_KINDS)
