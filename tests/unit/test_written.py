"""The set of written decisions, inferred from the decisions topic, never contains a decision that is not written."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.decisions.written import AT_ONCE, REMEMBERED, Written, cause_of
from eventstore.log import ZONES, Partition


def test_nothing_is_inferred_before_the_first_read() -> None:
    written = Written()
    assert 0 not in written and written.floor == 0


def test_read_decisions_and_much_older_ones_are_written() -> None:
    written = Written()
    for offset in range(100, 100 + REMEMBERED):
        written.add(offset)
    assert 99 not in written and 100 in written and 100 + REMEMBERED not in written
    written.add(100 + REMEMBERED)
    assert written.floor == 101 and 5 in written
    assert len(written._recent) == len(written._heap) == REMEMBERED


def test_a_late_copy_changes_nothing() -> None:
    written = Written()
    for offset in range(REMEMBERED + 50):
        written.add(offset)
    floor = written.floor
    for offset in (0, floor - 1, floor, REMEMBERED + 49):
        written.add(offset)
    assert written.floor == floor == 50


@given(
    st.lists(st.tuples(st.integers(1, AT_ONCE), st.integers(1, 3)), max_size=12),
    st.integers(0, 2_000),
    st.integers(0, AT_ONCE),
    st.integers(),
)
def test_every_inferred_decision_is_in_the_topic(
    batches: list[tuple[int, int]], skipped: int, landed: int, seed: int
) -> None:
    """Writers append batches in turn, each batch in any order. Only a part of the last batch landed."""
    rng, topic, offset = Random(seed), list[int](), 0
    for size, step in batches:
        batch = [offset + step * i for i in range(size)]
        offset = batch[-1] + 1
        rng.shuffle(batch)
        topic += batch + rng.sample(batch, rng.randint(0, len(batch)))  # another writer appends a part of the batch too
    last = [offset + i for i in range(AT_ONCE)]
    topic += rng.sample(last, landed)
    decided = {*topic, *last}
    written = Written()
    for read in topic[skipped:]:
        written.add(read)
    assert {each for each in decided if each in written} <= {*topic}


@pytest.mark.parametrize(
    "key", [b"", b"zones", b"zones/1", b"zones/1/", b"zones//1", "zones/²/1".encode(), b"zones/1/-2", b"zones/1/2/3"]
)
def test_an_invalid_key_of_a_decision_is_ignored(key: bytes) -> None:
    assert cause_of(key) is None
    assert cause_of(b"zones/1/12") == (Partition(ZONES, 1), 12)
