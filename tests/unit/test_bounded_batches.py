"""Batches are within both limits, lose nothing, and are as few as the order of the items allows."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from eventstore.bounded_batches import bounded_batches


@given(st.lists(st.integers(0, 12)), st.integers(1, 5))
def test_batches_are_within_both_limits_and_none_could_take_the_next_item(sizes: list[int], items_max: int) -> None:
    batches = list(bounded_batches(sizes, lambda size: size, items_max=items_max, bytes_max=10))
    assert list(chain(*batches)) == sizes
    for batch in batches:
        assert 1 <= len(batch) <= items_max
        assert sum(batch) <= 10 or len(batch) == 1, "a larger item is a batch of its own"
    for batch, following in pairwise(batches):
        assert len(batch) == items_max or sum(batch) + following[0] > 10
