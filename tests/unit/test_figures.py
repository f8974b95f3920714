"""Figures of benches: a ratio above 1 is in our favour, an aim is met in the right direction."""

from __future__ import annotations

from tests.bench.figures import Figure, percentile


def test_higher_is_better() -> None:
    figure = Figure("rate", 80.0, "k/s", peer=40.0, aim=70.0)
    assert (figure.ratio, figure.met) == (2.0, True)
    assert Figure("rate", 60.0, "k/s", aim=70.0).met is False


def test_lower_is_better() -> None:
    figure = Figure("time", 2.0, "ms", peer=8.0, aim=5.0, better="lower")
    assert (figure.ratio, figure.met) == (4.0, True)
    assert Figure("time", 6.0, "ms", aim=5.0, better="lower").met is False


def test_nothing_to_compare_with_is_not_a_ratio() -> None:
    assert Figure("size", 1.0, "B").ratio is None
    assert Figure("size", 1.0, "B").met is None
    assert Figure("size", 0.0, "B", peer=1.0).ratio is None


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0
    assert percentile([], 0.99) == 0.0
