"""Counts of allowed addresses per list are incremental: a change costs by its size, not by the size of the fleet."""

from __future__ import annotations

import pytest

from tests.support.fleet import Fleet, Item

RACKS = 20


def test_a_change_evaluates_each_list_once_for_its_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, asked = Fleet(), 0
    racks = [{"rack": f"r{i}"} for i in range(RACKS)]
    for i, rack in enumerate(racks):
        fleet.describe(f"z{i}", rack)
        fleet.policy(f"p{i}", priority=1, action="drop", sources=rack, zones=rack)
    nodes = [Item(f"n{i}", "z0", f"10.0.0.{i + 1}", labels=rack) for i, rack in enumerate(racks)]
    fleet.change(*nodes)
    fleet.unlimited()
    state, allows = fleet.state, fleet.state.plan.allows
    number = state.list_number("z0")
    assert state.allowed_by(number) == RACKS - 1

    def count(of: int, bits: int) -> int:
        nonlocal asked
        asked += 1
        return allows(of, bits)

    monkeypatch.setattr(state.plan, "allows", count)
    state.count_addresses(state.plan.bits_of(racks[1]), -1)
    assert asked == len(state.plan.lists)
    assert [state.allowed_by(number), state.allowed_by(state.list_number("z1"))] == [RACKS - 2, RACKS - 1]


def test_counts_follow_zone_labels_that_do_not_change_the_sets() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.0.{i + 1}", labels={"a": "1"} if i < 3 else {}) for i in range(9)))
    fleet.describe("z0", {"t": "1"})
    fleet.policy("p", priority=1, action="drop", sources={"a": "1"}, zones={"t": "1"})
    fleet.unlimited()
    assert fleet.state.allowed_by(fleet.state.list_number("z0")) == 6
    fleet.describe("z2", {"t": "1"})
    fleet.describe("z0", {"t": "2"})
    counts = {zone: fleet.state.allowed_by(fleet.state.list_number(zone)) for zone in ("z0", "z2")}
    assert counts == {"z0": 9, "z2": 6}
