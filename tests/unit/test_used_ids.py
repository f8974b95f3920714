"""Used ids: exact up to a bound, by ranges beyond it; no added id is ever missing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.folding.used_ids import GAP_MS, RANGES_MAX, UsedIds
from eventstore.ids import uuid7
from tests.support.toy_records import T0

MINUTE_MS = 60_000


def ids_at(*minutes: int, rng: random.Random) -> list[str]:
    return [uuid7(T0 + minute * MINUTE_MS, rng) for minute in minutes]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventstore.folding.used_ids.CHUNK_IDS", 4)


@given(st.lists(st.lists(st.integers(0, 500), max_size=9), max_size=30), st.sampled_from([0, 5, 20, 1_000]), st.data())
def test_every_added_id_is_found_and_only_ranges_contain_others(
    steps: list[list[int]], ids_max: int, data: st.DataObject
) -> None:
    rng = random.Random(1)
    used, added = UsedIds(ids_max), set[str]()
    for minutes in steps:
        ids = ids_at(*minutes, rng=rng)
        used.add(ids)
        added.update(ids)
    assert all(each in used and used.may_hold(each) for each in added)
    assert len(used) <= ids_max and sum(map(len, used.chunks().values())) == 16 * len(used)
    (other,) = ids_at(data.draw(st.integers(-20, 520)), rng=rng)
    assert (other in used) == (used.range_of(other) is not None)
    if other not in added and other in used:
        assert used.ranges, "an unused id is found only within a range"


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=300))
def test_ranges_are_few_ordered_and_disjoint(minutes: list[int]) -> None:
    used = UsedIds(0)
    for minute in minutes:
        used.add(ids_at(minute, rng=random.Random(minute)))
    assert 1 <= len(used.ranges) <= RANGES_MAX
    for one, other in zip(used.ranges, used.ranges[1:], strict=False):
        assert one.first <= one.last < other.first <= other.last


def test_a_range_ends_at_a_gap_of_ten_minutes() -> None:
    rng = random.Random(2)
    before, after, between = ids_at(0, rng=rng), ids_at(60, 65, rng=rng), ids_at(30, rng=rng)
    used = UsedIds(0)
    used.add([*before, *after])
    assert between[0] not in used and len(used.ranges) == 2
    assert ids_at(62, rng=rng)[0] in used
    assert GAP_MS == 10 * MINUTE_MS


def test_the_oldest_ranges_are_merged_beyond_the_limit() -> None:
    rng = random.Random(3)
    used = UsedIds(0)
    ids = ids_at(*range(0, 20 * (RANGES_MAX + 1), 20), rng=rng)
    used.add(ids)
    assert len(used.ranges) == RANGES_MAX
    assert used.ranges[0] == (ids[0], ids[1]) and used.ranges[1:] == tuple((each, each) for each in ids[2:])
