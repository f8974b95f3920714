"""The ring of changes: a reader that continues from its last position misses nothing and gets nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.rpc.errors import PositionExpired
from commands.streams.change_ring import ChangeRing
from eventstore.folding.state_table import StateTable

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(st.dictionaries(KEYS, st.none() | st.integers(0, 3), max_size=3), max_size=30)


@given(STEPS, st.integers(1, 12), st.sets(st.integers(0, 30)))
def test_changes_read_in_parts_are_complete(steps: list[dict[str, int | None]], most: int, reads: set[int]) -> None:
    ring = ChangeRing(7, most)
    changed: set[str] = set()
    position = 7
    for number, changes in enumerate(steps):
        ring.add(8 + number, changes)
        changed |= changes.keys()
        if number not in reads:
            continue
        try:
            found = ring.since(position)
        except PositionExpired:
            assert position < ring.begin and changed, "a position expires only when changes after it were dropped"
        else:
            assert found.keys() == changed
        changed, position = set(), 8 + number
    assert ring.since(ring.end) == {}
    assert sum(len(changes) for _, changes in ring._entries) <= most


def test_the_latest_removed_row_of_a_key_is_returned() -> None:
    ring = ChangeRing(0, 10)
    ring.add(1, {"a": 1})
    ring.add(2, {"a": 2, "b": None})
    assert ring.since(0) == {"a": 2, "b": None}
    assert ring.since(1) == {"a": 2, "b": None}
    assert ring.since(2) == {}


def test_a_position_before_the_ring_has_expired() -> None:
    ring = ChangeRing(5, 2)
    with pytest.raises(PositionExpired, match="position: 4 has expired, the changes are known from 5 on; list again"):
        ring.since(4)
    for number in range(3):
        ring.add(6 + number, {f"k{number}": None})
    assert ring.begin == 6 and ring.since(6).keys() == {"k1", "k2"}


def test_a_watched_table_collects_put_touched_and_removed_rows() -> None:
    table: StateTable[int] = StateTable("t", int)
    table.put("before", 1)
    assert table.take_watched() == {}
    table.put("a", 1)
    table.put_all({"b": 2})
    table.add_all({"c": 3})
    table.remove("b")
    table.remove("absent")
    assert table.take_watched() == {"a": None, "b": 2, "c": None}
    table.remove("a")
    table.put("a", 4)
    assert table.take_watched() == {"a": 1}
    assert table.take_watched() == {}
