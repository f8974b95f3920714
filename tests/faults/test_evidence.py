"""A fault of a pair that did nothing is found out, also where the other one shows itself by the same count."""

from __future__ import annotations

from tests.faults.run import shown
from tests.faults.table import FAULTS

ONE, OTHER = FAULTS["broker isolated"], FAULTS["packets lost"]


def test_each_fault_of_a_pair_shows_itself() -> None:
    found = shown([ONE, OTHER], [{"packets dropped": 0}, {"packets dropped": 7}])
    assert found == {"packets dropped (broker isolated)": 0, "packets dropped (packets lost)": 7}


def test_a_fault_that_counted_nothing_is_none() -> None:
    assert shown([ONE], [{}]) == {"trace": 0}
    assert shown([ONE], [{"packets dropped": 3}]) == {"packets dropped": 3}
