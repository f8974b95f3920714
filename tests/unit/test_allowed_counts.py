"""Counts of allowed addresses per list are incremental: a change costs by its size, not by the size of the fleet."""

from __future__ import annotations

from projections.fleet.allowed_counts import AllowedCounts
from projections.rules.lists import Plan
from projections.rules.policies import BUILT_IN, Policy
from tests.support.fleet import Fleet, Item

RACKS = 20


class AskedPlan(Plan):
    """Counts how often it is asked for a verdict."""

    asked = 0

    def allows(self, number: int, bits: int) -> int:
        self.asked += 1
        return super().allows(number, bits)


def plan_of(action: str) -> AskedPlan:
    """A list, and a combination of sets, per rack."""
    racks = [{"rack": f"r{i}"} for i in range(RACKS)]
    policies = [Policy(f"p{i}", 1, action, "any", (), rack, rack, 1) for i, rack in enumerate(racks)]
    return AskedPlan([BUILT_IN, *policies], [tuple(rack.items()) for rack in racks])


def test_a_change_looks_at_the_combinations_that_it_touches_alone() -> None:
    plan, allowed = plan_of("drop"), AllowedCounts()
    reach = {plan.bits_of({"rack": f"r{i}"}): 10 for i in range(RACKS)}
    lists = len(plan.lists)
    number = plan.number_of({"rack": "r0"})
    assert allowed.of(number, plan, reach) == 10 * (RACKS - 1)
    assert plan.asked == lists * RACKS
    left = plan.bits_of({"rack": "r1"})
    reach[left] -= 1
    allowed.note(left, -1)
    plan.asked = 0
    assert [allowed.of(each, plan, reach) for each in (number, plan.number_of({"rack": "r1"}))] == [
        10 * (RACKS - 1) - 1,
        10 * (RACKS - 1),
    ]
    assert plan.asked == lists
    assert allowed.of(number, plan_of("allow"), reach) == 10 * RACKS - 1, "another plan is counted anew"


def test_counts_follow_labels_of_zones_that_leave_the_sets_as_they_are() -> None:
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
