"""The budget of repairs of a bridge, and their log."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.backends import repairs as module
from drivers.backends.repairs import HOUR_S, SPACING_S, RepairBudget, Repairs

INTERVAL_S = 30.0
PAUSES_S = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 600.0, HOUR_S - 1, HOUR_S]), st.booleans()), max_size=60)
"""How long after the last difference the next one is found, and whether the bridge is empty then."""


@given(PAUSES_S, st.integers(1, 5))
def test_no_hour_has_more_repairs_than_the_budget_unless_bridges_were_empty(
    found: list[tuple[float, bool]], per_hour: int
) -> None:
    budget, now = RepairBudget(per_hour), 1_000.0
    repaired: list[float] = []
    for pause_s, is_empty in found:
        now += pause_s
        spent = sum(at > now - HOUR_S for at in repaired)
        assert budget.allows(now) == (spent < per_hour)
        assert budget.allows(now, is_empty=True)
        if budget.allows(now, is_empty=is_empty):
            budget.spend(now)
            repaired.append(now)


@given(PAUSES_S, st.integers(1, 5))
def test_reported_changes_wait_the_longer_the_more_repairs_there_were(
    found: list[tuple[float, bool]], per_hour: int
) -> None:
    budget, now = RepairBudget(per_hour), 1_000.0
    for pause_s, _ in found:
        now += pause_s
        before = budget.spacing_s(now, INTERVAL_S)
        budget.spend(now)
        assert SPACING_S <= before <= budget.spacing_s(now, INTERVAL_S) <= INTERVAL_S
        assert budget.allows(now) == (budget.spacing_s(now, INTERVAL_S) < INTERVAL_S)
    assert budget.spacing_s(now + HOUR_S, INTERVAL_S) == SPACING_S


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


LEFT = "the bridge does not hold its table and is not repaired: "


def test_a_difference_that_stays_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "REPAIRS_PER_HOUR", 7)
    found = Repairs("table", {"socket": "/br0"})
    spent = f"{LEFT}repairs within the last hour: 7, its limit"
    for state, expected in ((b"a", [spent]), (b"a", []), (b"b", [spent]), (b"a", [spent])):
        caplog.clear()
        found.beyond_budget(state)
        assert texts(caplog) == expected
    caplog.clear()
    for _ in range(3):
        found.whole()
    assert texts(caplog) == ["the bridge holds its table again"]
    found.beyond_budget(b"a")
    assert texts(caplog)[1:] == [spent], "after its end it is a new one"
    assert found.counts(2) == (2, 0, 4)


def test_a_refused_repair_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    found = Repairs("table", {"socket": "/br0"})
    for reason in ("full", "full", "hook-priority", "full"):
        found.not_repaired(reason)
    assert texts(caplog) == [LEFT + "full", LEFT + "hook-priority", LEFT + "full"]
    assert all(first != second for first, second in pairwise(texts(caplog)))


def test_each_repair_is_logged_and_ends_the_difference(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = Repairs("table", {"socket": "/br0"})
    found.not_repaired("full")
    caplog.clear()
    for now in (1.0, 2.0):
        found.repaired(3, now)
        found.whole()
    assert texts(caplog) == ["the bridge did not have the flows of its table"] * 2
    assert [vars(each)["flows"] for each in caplog.records] == [3, 3]
    assert found.counts(1) == (1, 2, 1)
