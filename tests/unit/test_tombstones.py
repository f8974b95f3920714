"""Tombstones of fleet: their effect on other partitions, and their lifetime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.log import partition_of
from projections.fleet.membership import tombstones
from projections.fleet.membership.tombstones import Tombstone, TombstoneRow, Tombstones
from projections.fleet.withdrawals.budgets import DENIED_BY_LEAVE
from projections.forwarding.fleet_to_zones import next_record
from schemas.events import LEFT, SUPERSEDED, NodesSuperseded
from tests.support.fleet import PARTITIONS, Fleet, Item

LATER = 10_000
A, B = (
    next(zone for zone in map("z{}".format, range(99)) if partition_of(zone.encode(), PARTITIONS) == number)
    for number in (0, 1)
)
GONE = Tombstone(1, 5, 20, 30)
"""Created at 5, stated last at 20, left at 30."""


@pytest.mark.parametrize(
    ("created_ms", "last_present_ms", "ends"),
    [
        (4, 10, True),
        (4, 30, True),
        (4, 31, False),
        (5, 19, True),
        (5, 20, False),
        (5, 25, False),
        (6, 10, False),
    ],
)
def test_a_leave_ends_older_incarnations_and_its_own_where_that_was_before(
    created_ms: int, last_present_ms: int, ends: bool
) -> None:
    assert GONE.ends(created_ms, last_present_ms) == ends
    assert GONE.ends_known(created_ms, last_present_ms, LATER) == ends
    assert GONE.ends_late(created_ms, last_present_ms, LATER) == ends


@pytest.mark.parametrize(("created_ms", "last_present_ms", "ends"), [(4, 30, True), (4, 31, False), (5, 10, False)])
def test_a_last_statement_later_than_its_leave_is_of_a_fast_clock_and_decides_nothing(
    created_ms: int, last_present_ms: int, ends: bool
) -> None:
    """Neither before fleet's own clock has come to its time nor after that."""
    fast = Tombstone(1, 5, 50, 30)
    for now_ms in (40, LATER):
        assert fast.ends_known(created_ms, last_present_ms, now_ms) == ends
        assert fast.ends_late(created_ms, last_present_ms, now_ms) == ends


def test_a_node_that_was_created_by_a_fast_clock_moves_once_it_is_put_right() -> None:
    fleet = Fleet()
    hour_ms = 3_600_000
    fleet.now_ms += hour_ms
    fleet.change(Item("n", A, "10.0.0.1", created_ms=fleet.now_ms))
    fleet.now_ms -= hour_ms
    fleet.change(Item("n", B, "10.0.0.1", created_ms=fleet.now_ms - 1))
    assert fleet.state.members.rows["n"].zone == B
    told = next_record(fleet.state, 0, 0)
    assert isinstance(told, NodesSuperseded) and (told.zones, told.names) == ([A], ["n"])


def test_times_ahead_of_fleet_decide_nothing() -> None:
    """A partition whose clock was fast: what fleet hears later counts, and equal creation times end nothing."""
    assert GONE.ends_known(4, 31, 29) and not GONE.ends_known(5, 10, 29)
    assert not GONE.ends_late(4, 10, 29)


times = st.integers(1, 4)
tombstone = st.builds(Tombstone, st.just(1), times, times, times)


@given(tombstone, tombstone, times, times)
def test_one_that_replaces_another_ends_all_that_it_ended(
    new: Tombstone, old: Tombstone, created_ms: int, last_present_ms: int
) -> None:
    if new.replaces(old) and old.ends(created_ms, last_present_ms):
        assert new.ends(created_ms, last_present_ms)


def test_the_nodes_of_which_fleet_heard_first_are_forgotten_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tombstones, "MAX_TOMBSTONES", 3)
    one, other = Tombstones(), Tombstones()
    one.note({"d": GONE, "a": GONE}, 1)
    one.note({"c": GONE}, 2)
    one.note({"d": GONE}, 3)
    other.load(sorted(one.rows.items()))
    other.rederive()
    for table in (one, other):
        table.note({"b": GONE}, 4)
        assert set(table.rows) == {"c", "d", "b"}
        table.note({"e": GONE}, 5)
        assert set(table.rows) == {"d", "b", "e"}


def test_a_node_keeps_those_that_no_later_one_replaces_and_only_a_few() -> None:
    table = Tombstones()
    table.note({"n": GONE}, 1)
    table.note({"n": Tombstone(1, 6, 40, 50)}, 2)
    assert table.rows["n"] == TombstoneRow(2, (Tombstone(1, 6, 40, 50),))
    for number in range(2, 9):
        table.note({"n": Tombstone(number, 3, 60, 70)}, number)
    assert len(table.rows["n"].tombstones) == 4
    assert table.end("n", 9, 3, 59, now_ms=LATER) and not table.end("other", 9, 3, 59, now_ms=LATER)


def moved(fleet: Fleet, *, state: int = LEFT) -> None:
    """A node in A, of which B says that a newer incarnation came and left."""
    fleet.change(Item("n", A, "10.0.0.1", created_ms=5, changed_ms=10))
    fleet.change(Item("n", B, state=state, created_ms=6, changed_ms=30, last_present_ms=20))


def test_a_leave_of_something_newer_elsewhere_is_a_stated_leave_and_the_zone_is_told() -> None:
    fleet = Fleet()
    moved(fleet)
    assert not fleet.state.members.rows
    assert {key.split("/")[0] for key in fleet.state.windows.rows} == {DENIED_BY_LEAVE}
    told = next_record(fleet.state, 0, 0)
    assert isinstance(told, NodesSuperseded)
    assert (told.zones, told.names, told.created_ms, told.seen_offset) == ([A], ["n"], [5], fleet.state.marks[0])


def test_over_budget_it_is_held_as_any_leave_and_the_zone_is_told_all_the_same() -> None:
    fleet = Fleet()
    fleet.budget(DENIED_BY_LEAVE, 0, 0)
    moved(fleet)
    assert fleet.state.members.rows["n"].held and len(fleet.state.holds.rows) == 1
    (hold,) = fleet.state.holds.rows.values()
    assert hold.kind == DENIED_BY_LEAVE and next_record(fleet.state, 0, 0) is not None
    fleet.change(Item("n", A, state=SUPERSEDED, created_ms=5, changed_ms=40, last_present_ms=10))
    assert fleet.state.members.rows["n"].held, "that the zone dropped it changes nothing of the hold"


def test_a_superseded_node_leaves_no_tombstone_and_ends_nothing() -> None:
    fleet = Fleet()
    moved(fleet, state=SUPERSEDED)
    assert fleet.state.members.rows["n"].zone == A and not fleet.state.tombstones.rows


def test_a_leave_that_says_no_time_ends_nothing() -> None:
    """The node's own agent had put it there."""
    fleet = Fleet()
    fleet.change(Item("n", A, "10.0.0.1", created_ms=5, changed_ms=10))
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30))
    assert fleet.state.members.rows["n"].zone == A and not fleet.state.tombstones.rows


def test_a_late_join_of_what_has_ended_is_sent_back_and_after_a_restart_too() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.state = fleet.reload()
    fleet.change(Item("n", A, created_ms=5, changed_ms=10), Item("m", A))
    assert set(fleet.state.members.rows) == {"m"}
    told = next_record(fleet.state, 0, 0)
    assert isinstance(told, NodesSuperseded) and told.names == ["n"]


def test_a_join_after_the_leave_stands_though_the_callers_clock_is_slow() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.change(Item("n", A, created_ms=5, changed_ms=31))
    assert fleet.state.members.rows["n"].zone == A


@pytest.mark.parametrize("created_ms", [5, 6, 7])
def test_a_join_after_the_leave_stands_though_the_node_that_left_was_stated_on_a_fast_clock(created_ms: int) -> None:
    fleet = Fleet()
    now_ms, fast_ms = fleet.now_ms, fleet.now_ms + 3_600_000
    fleet.now_ms = fast_ms
    fleet.change(Item("n", B, created_ms=6, changed_ms=fast_ms))
    fleet.now_ms = now_ms + 30
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=now_ms + 20, last_present_ms=fast_ms))
    fleet.change(Item("n", A, created_ms=created_ms, changed_ms=now_ms + 25))
    assert fleet.state.members.rows["n"].zone == A


def test_the_last_statement_of_a_node_that_left_is_the_last_of_its_partition_though_it_is_earlier() -> None:
    """The clock was put right between two statements of the node, and fleet had heard of the first."""
    fleet = Fleet()
    now_ms, fast_ms = fleet.now_ms, fleet.now_ms + 3_600_000
    fleet.now_ms = fast_ms
    fleet.change(Item("n", B, created_ms=6, changed_ms=fast_ms))
    fleet.now_ms = now_ms + 40
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=now_ms + 30, last_present_ms=now_ms + 20))
    fleet.change(Item("n", A, created_ms=6, changed_ms=now_ms + 10))
    assert not fleet.state.members.rows


def test_a_partition_may_bring_back_what_left_it() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.change(Item("n", B, created_ms=5, changed_ms=25))
    assert fleet.state.members.rows["n"].zone == B


def test_of_equal_incarnations_the_one_that_was_stated_later_has_the_node_whoever_is_heard_first() -> None:
    for first, second in ((A, B), (B, A)):
        fleet = Fleet()
        stated = {A: 10, B: 20}
        for zone in (first, second):
            fleet.change(Item("n", zone, created_ms=5, changed_ms=stated[zone]))
        assert fleet.state.members.rows["n"].zone == B


def test_of_equal_incarnations_the_one_heard_of_later_has_the_node_if_a_clock_was_fast() -> None:
    fleet = Fleet()
    fleet.change(Item("n", A, created_ms=5, changed_ms=fleet.now_ms + 3_600_000))
    fleet.change(Item("n", B, created_ms=5, changed_ms=fleet.now_ms))
    assert fleet.state.members.rows["n"].zone == B
