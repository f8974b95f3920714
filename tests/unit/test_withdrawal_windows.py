"""Windows of budgets compared with a plain list of withdrawals, and the reasons of holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.fold import Outcome
from projections.fleet.withdrawals.budgets import (
    BUCKET_MS,
    BUDGET_WINDOW_MS,
    EMPTY_WINDOW,
    MAX_SHOWN_ZONES,
    Budget,
    BudgetWindow,
    add_hashes,
    hash_of,
    merged_windows,
    reason_of,
)
from projections.fleet.withdrawals.settled_levels import BudgetBase
from tests.support.fleet import Fleet, Item

MANY = 150

steps = st.sampled_from([0, 1, BUCKET_MS - 1, BUCKET_MS, BUCKET_MS + 1, BUDGET_WINDOW_MS - 1, BUDGET_WINDOW_MS])
withdrawals = st.lists(st.tuples(steps, st.integers(0, 9)), max_size=12)


def charged(spends: list[tuple[int, int]]) -> tuple[BudgetWindow, list[tuple[int, int]]]:
    """The window after these charges (ms since the last one, count), and the plain list (time, count)."""
    window, now_ms, plain = EMPTY_WINDOW, 1_700_000_000_123, []
    for step_ms, count in spends:
        now_ms += step_ms
        window = window.charged(now_ms, count)
        plain.append((now_ms, count))
    return window, plain


@given(withdrawals, steps)
def test_a_window_forgets_at_most_one_bucket_late_and_never_early(spends: list[tuple[int, int]], since_ms: int) -> None:
    window, plain = charged(spends)
    now_ms = (plain[-1][0] if plain else 0) + since_ms
    within = sum(count for time_ms, count in plain if time_ms > now_ms - BUDGET_WINDOW_MS)
    lately = sum(count for time_ms, count in plain if time_ms > now_ms - BUDGET_WINDOW_MS - BUCKET_MS)
    assert within <= window.spent(now_ms) <= lately
    assert len(window.buckets) <= BUDGET_WINDOW_MS // BUCKET_MS + 2, "the number of buckets is bounded"
    assert [*window.buckets] == sorted(window.buckets)


@given(withdrawals, withdrawals)
def test_a_merged_window_has_at_least_each_and_at_most_the_sum(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """A merge of two lists keeps the withdrawals of both, so that a move to another list frees no budget."""
    (first, plain), (second, also) = charged(one), charged(other)
    now_ms = max([time_ms for time_ms, _ in (*plain, *also)], default=0)
    both = merged_windows([first, second], now_ms)
    assert both == merged_windows([second, first], now_ms)
    alone = (first.spent(now_ms), second.spent(now_ms))
    assert max(alone) <= both.spent(now_ms) <= sum(alone)


@given(withdrawals, st.integers(-3 * BUDGET_WINDOW_MS, 100 * BUDGET_WINDOW_MS), st.integers(0, BUDGET_WINDOW_MS))
def test_withdrawals_under_a_fast_clock_expire_one_window_after_the_correction(
    spends: list[tuple[int, int]], ahead_ms: int, since_ms: int
) -> None:
    """They once counted for as long as the clock had been ahead, and every leave was held."""
    window, plain = charged(spends)
    now_ms = (plain[-1][0] if plain else 0) - ahead_ms
    corrected = window.rewind(now_ms)
    assert corrected.rewind(now_ms) == corrected
    assert corrected.spent(now_ms) == window.spent(now_ms), "the correction itself frees no budget"
    assert corrected.spent(now_ms + since_ms) <= window.spent(now_ms + since_ms)
    assert corrected.spent(now_ms + BUDGET_WINDOW_MS + BUCKET_MS) == 0
    assert all(start <= now_ms for start, count in corrected.buckets if count)


def test_a_budget_spent_under_a_fast_clock_is_free_again_ten_minutes_after_the_correction() -> None:
    fleet = full()
    fleet.budget("denied-by-leave", 100, MANY // 2)
    fleet.now_ms += 3_600_000
    assert fleet.leave(*(f"n{i}" for i in range(MANY // 2))).code == "done"
    fleet.now_ms -= 3_600_000
    assert fleet.leave("n280").code == "held", "recent withdrawals still count"
    fleet.now_ms += BUDGET_WINDOW_MS + BUCKET_MS
    assert fleet.leave("n281").code == "done"


@given(st.lists(st.integers(), unique=True, max_size=6), st.integers())
def test_the_hash_of_a_set_does_not_depend_on_order(parts: list[int], left: int) -> None:
    total = backwards = bytes(16)
    for part in parts:
        total = add_hashes(total, added=hash_of(part))
    for part in reversed(parts):
        backwards = add_hashes(backwards, added=hash_of(part))
    assert total == backwards
    assert len(total) == 16
    assert add_hashes(add_hashes(total, added=hash_of(left, "x")), removed=hash_of(left, "x")) == total
    assert add_hashes(total, added=hash_of(left, "x")) != total


def test_a_budget_may_be_zero_or_unlimited() -> None:
    fleet = Fleet()
    assert fleet.budget("denied-by-change", 0, 0).code == "done"
    assert fleet.budget("denied-by-change", 1_000, 0).code == "done"
    assert Budget("denied-by-leave", 1_000, 5).limit(BudgetBase(30, 30)) is None
    assert Budget("denied-by-leave", 999, 0).limit(BudgetBase(1_000, 1_000)) == 999


def full(zones: int = 1) -> Fleet:
    fleet = Fleet()
    for number in range(1, zones):
        fleet.describe(f"y{number:03}", {"tier": "t"})
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.{i // 250}.{i % 250 + 1}", labels={"a": "b"}) for i in range(2 * MANY)))
    return fleet


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (
            lambda fleet: fleet.leave(*(f"n{i}" for i in range(MANY)), state=2),
            "nodes: 150 addresses would be denied at once, over the denied-by-change budget; the rule tables "
            "keep the previous state",
        ),
        (
            lambda fleet: fleet.policy("no", action="drop", sources={"a": "b"}),
            "policy: 'no': 300 addresses would be denied at once, over the denied-by-change budget; it waits "
            "for approval",
        ),
    ],
)
def test_the_reason_of_a_hold_has_the_count_and_the_budget(held: Callable[[Fleet], Outcome], reason: str) -> None:
    fleet = full()
    outcome = held(fleet)
    assert outcome.code == "held"
    hold = fleet.state.holds.rows[str(outcome.result["hold"])]
    assert (reason_of(hold), hold.since_ms, hold.requested_by != "") == (reason, fleet.now_ms, True)


def test_a_hold_of_a_zones_labels_names_the_zone() -> None:
    fleet = full()
    fleet.policy("no", action="drop", zones={"tier": "none"})
    outcome = fleet.describe("z0", {"tier": "none"})
    reason = (
        "zone: labels of 'z0': 300 addresses would be denied at once, over the denied-by-change budget; it "
        "waits for approval"
    )
    assert outcome.reason == reason


def test_a_hold_lists_a_limited_number_of_zones() -> None:
    fleet = full(zones=MAX_SHOWN_ZONES + 5)
    outcome = fleet.leave(*(f"n{i}" for i in range(MANY)), state=2)
    zones = fleet.state.holds.rows[str(outcome.result["hold"])].zones
    assert len(zones) == MAX_SHOWN_ZONES
    assert [*zones] == sorted(zones)
