"""Tombstones of fleet: their effect on statements of other partitions, and their lifetime."""

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
"""The tombstone of a node that was created at 5 ms, last stated at 20 ms, and left at 30 ms."""


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
def test_a_leave_ends_older_incarnations_and_earlier_statements_of_its_own(
    created_ms: int, last_present_ms: int, ends: bool
) -> None:
    assert GONE.ends(created_ms, last_present_ms) == ends
    assert GONE.ends_known(created_ms, last_present_ms, LATER) == ends
    assert GONE.ends_late(created_ms, last_present_ms, LATER) == ends


@pytest.mark.parametrize(("created_ms", "last_present_ms", "ends"), [(4, 30, True), (4, 31, False), (5, 10, False)])
def test_a_last_statement_later_than_its_leave_decides_nothing(
    created_ms: int, last_present_ms: int, ends: bool
) -> None:
    """Such a statement has the time of a fast clock. It has no effect, even after fleet's clock reaches this time."""
    fast = Tombstone(1, 5, 50, 30)
    for now_ms in (40, LATER):
        assert fast.ends_known(created_ms, last_present_ms, now_ms) == ends
        assert fast.ends_late(created_ms, last_present_ms, now_ms) == ends


def test_a_node_created_under_a_fast_clock_can_move_after_the_correction() -> None:
    fleet = Fleet()
    hour_ms = 3_600_000
    fleet.now_ms += hour_ms
    fleet.change(Item("n", A, "10.0.0.1", created_ms=fleet.now_ms))
    fleet.now_ms -= hour_ms
    fleet.change(Item("n", B, "10.0.0.1", created_ms=fleet.now_ms - 1))
    assert fleet.state.members.rows["n"].zone == B
    superseded = next_record(fleet.state, 0, 0)
    assert isinstance(superseded, NodesSuperseded) and (superseded.zones, superseded.names) == ([A], ["n"])


def test_times_ahead_of_fleet_decide_nothing() -> None:
    """After a clock error, the later forward counts, and a leave ends no incarnation of the same creation time."""
    assert GONE.ends_known(4, 31, 29) and not GONE.ends_known(5, 10, 29)
    assert not GONE.ends_late(4, 10, 29)


times = st.integers(1, 4)
tombstone = st.builds(Tombstone, st.just(1), times, times, times)


@given(tombstone, tombstone, times, times)
def test_a_tombstone_that_replaces_another_ends_all_that_it_ended(
    new: Tombstone, old: Tombstone, created_ms: int, last_present_ms: int
) -> None:
    if new.replaces(old) and old.ends(created_ms, last_present_ms):
        assert new.ends(created_ms, last_present_ms)


def test_the_oldest_tombstones_are_forgotten_first_also_after_a_restart(
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


def test_a_node_keeps_at_most_four_tombstones() -> None:
    table = Tombstones()
    table.note({"n": GONE}, 1)
    table.note({"n": Tombstone(1, 6, 40, 50)}, 2)
    assert table.rows["n"] == TombstoneRow(2, (Tombstone(1, 6, 40, 50),))
    for number in range(2, 9):
        table.note({"n": Tombstone(number, 3, 60, 70)}, number)
    assert len(table.rows["n"].tombstones) == 4
    assert table.end("n", 9, 3, 59, now_ms=LATER) and not table.end("other", 9, 3, 59, now_ms=LATER)


def moved(fleet: Fleet, *, state: int = LEFT) -> None:
    """A node in zone A, and a leave of a newer incarnation from zone B."""
    fleet.change(Item("n", A, "10.0.0.1", created_ms=5, changed_ms=10))
    fleet.change(Item("n", B, state=state, created_ms=6, changed_ms=30, last_present_ms=20))


def test_a_leave_of_a_newer_incarnation_elsewhere_counts_as_a_stated_leave() -> None:
    fleet = Fleet()
    moved(fleet)
    assert not fleet.state.members.rows
    assert {key.split("/")[0] for key in fleet.state.windows.rows} == {DENIED_BY_LEAVE}
    superseded = next_record(fleet.state, 0, 0)
    assert isinstance(superseded, NodesSuperseded)
    assert (superseded.zones, superseded.names, superseded.created_ms, superseded.seen_offset) == (
        [A],
        ["n"],
        [5],
        fleet.state.marks[0],
    )


def test_a_superseded_leave_over_budget_is_held_and_the_zone_gets_its_record() -> None:
    fleet = Fleet()
    fleet.budget(DENIED_BY_LEAVE, 0, 0)
    moved(fleet)
    assert fleet.state.members.rows["n"].held and len(fleet.state.holds.rows) == 1
    (hold,) = fleet.state.holds.rows.values()
    assert hold.kind == DENIED_BY_LEAVE and next_record(fleet.state, 0, 0) is not None
    fleet.change(Item("n", A, state=SUPERSEDED, created_ms=5, changed_ms=40, last_present_ms=10))
    assert fleet.state.members.rows["n"].held, "the hold stays although the zone dropped the node"


def test_a_superseded_node_leaves_no_tombstone_and_ends_nothing() -> None:
    fleet = Fleet()
    moved(fleet, state=SUPERSEDED)
    assert fleet.state.members.rows["n"].zone == A and not fleet.state.tombstones.rows


def test_a_leave_without_a_time_ends_nothing() -> None:
    """A leave has no time if the node's own agent had joined it to that zone."""
    fleet = Fleet()
    fleet.change(Item("n", A, "10.0.0.1", created_ms=5, changed_ms=10))
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30))
    assert fleet.state.members.rows["n"].zone == A and not fleet.state.tombstones.rows


def test_a_late_join_of_an_ended_incarnation_is_superseded_also_after_a_restart() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.state = fleet.reload()
    fleet.change(Item("n", A, created_ms=5, changed_ms=10), Item("m", A))
    assert set(fleet.state.members.rows) == {"m"}
    superseded = next_record(fleet.state, 0, 0)
    assert isinstance(superseded, NodesSuperseded) and superseded.names == ["n"]


def test_a_join_after_the_leave_counts_although_its_clock_is_slow() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.change(Item("n", A, created_ms=5, changed_ms=31))
    assert fleet.state.members.rows["n"].zone == A


@pytest.mark.parametrize("created_ms", [5, 6, 7])
def test_a_join_after_the_leave_counts_although_the_former_join_had_a_fast_clock(created_ms: int) -> None:
    fleet = Fleet()
    now_ms, fast_ms = fleet.now_ms, fleet.now_ms + 3_600_000
    fleet.now_ms = fast_ms
    fleet.change(Item("n", B, created_ms=6, changed_ms=fast_ms))
    fleet.now_ms = now_ms + 30
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=now_ms + 20, last_present_ms=fast_ms))
    fleet.change(Item("n", A, created_ms=created_ms, changed_ms=now_ms + 25))
    assert fleet.state.members.rows["n"].zone == A


def test_the_last_statement_of_a_partition_counts_although_its_time_is_earlier() -> None:
    """The clock was corrected between two statements about the node, and fleet had received the first."""
    fleet = Fleet()
    now_ms, fast_ms = fleet.now_ms, fleet.now_ms + 3_600_000
    fleet.now_ms = fast_ms
    fleet.change(Item("n", B, created_ms=6, changed_ms=fast_ms))
    fleet.now_ms = now_ms + 40
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=now_ms + 30, last_present_ms=now_ms + 20))
    fleet.change(Item("n", A, created_ms=6, changed_ms=now_ms + 10))
    assert not fleet.state.members.rows


def test_a_partition_may_rejoin_its_own_node() -> None:
    fleet = Fleet()
    fleet.change(Item("n", B, state=LEFT, created_ms=6, changed_ms=30, last_present_ms=20))
    fleet.change(Item("n", B, created_ms=5, changed_ms=25))
    assert fleet.state.members.rows["n"].zone == B


def test_of_equal_incarnations_the_later_statement_has_the_node() -> None:
    for first, second in ((A, B), (B, A)):
        fleet = Fleet()
        stated = {A: 10, B: 20}
        for zone in (first, second):
            fleet.change(Item("n", zone, created_ms=5, changed_ms=stated[zone]))
        assert fleet.state.members.rows["n"].zone == B


def test_of_equal_incarnations_the_later_forward_has_the_node_if_a_clock_was_fast() -> None:
    fleet = Fleet()
    fleet.change(Item("n", A, created_ms=5, changed_ms=fleet.now_ms + 3_600_000))
    fleet.change(Item("n", B, created_ms=5, changed_ms=fleet.now_ms))
    assert fleet.state.members.rows["n"].zone == B
