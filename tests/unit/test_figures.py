"""Figures of benches: a ratio above 1 favours the plane, and an aim is met in the right direction."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.bench.figures import Figure, percentile
from tests.bench.folds_compared import Rate, Row, Stopwatch
from tests.bench.workload import FIRST_ADDRESS, joins


def test_higher_is_better() -> None:
    figure = Figure("rate", 80.0, "k/s", peer=40.0, aim=70.0)
    assert (figure.ratio, figure.met) == (2.0, True)
    assert Figure("rate", 60.0, "k/s", aim=70.0).met is False


def test_lower_is_better() -> None:
    figure = Figure("time", 2.0, "ms", peer=8.0, aim=5.0, better="lower")
    assert (figure.ratio, figure.met) == (4.0, True)
    assert Figure("time", 6.0, "ms", aim=5.0, better="lower").met is False


def test_a_figure_without_a_peer_has_no_ratio() -> None:
    assert Figure("size", 1.0, "B").ratio is None
    assert Figure("size", 1.0, "B").met is None
    assert Figure("size", 0.0, "B", peer=1.0).ratio is None


def test_percentiles_are_measured_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0
    assert percentile([], 0.99) == 0.0


def test_the_same_nodes_in_another_order_are_the_same_state() -> None:
    rows: list[Row] = [("n1", "z1", 1, {"a": "1", "b": "2"}), ("n2", "z1", 2, {})]
    other: list[Row] = [("n2", "z1", 2, {}), ("n1", "z1", 1, {"b": "2", "a": "1"})]
    _rate(rows).check(_rate(other))


@pytest.mark.parametrize(
    "row", [("n2", "z2", 2, {}), ("n2", "z1", 3, {}), ("n2", "z1", 2, {"a": "1"}), ("n3", "z1", 2, {})]
)
def test_a_peer_with_other_final_nodes_is_an_error(row: Row) -> None:
    first: Row = ("n1", "z1", 1, {})
    with pytest.raises(AssertionError):
        _rate([first, row]).check(_rate([first, ("n2", "z1", 2, {})]))


def test_consecutive_addresses_skip_every_fourth() -> None:
    events = joins(9, 1, 3, missing_each=4)
    addresses = [int.from_bytes(event.addresses4[at : at + 4], "big") for event in events for at in (0, 4, 8)]
    assert [address - FIRST_ADDRESS for address in addresses] == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def _rate(rows: Iterable[Row]) -> Rate:
    stopwatch = Stopwatch()
    stopwatch.stop()
    return stopwatch.rate(2, rows)
