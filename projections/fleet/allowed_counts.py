"""Counts of the addresses that each list allows any traffic, updated with each change.

Budgets are shares of these counts. A fleet may have a list and a combination of sets per rack. A scan of every
combination for every list took 13 ms of each leave with 300 racks, and grows with their square. So only the
combinations that addresses entered or left are updated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from projections.rules.lists import Plan


class AllowedCounts:
    """The counts under one plan. A change is only noted, and applied when a count is read."""

    __slots__ = ("_counts", "_moved", "_plan")

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._counts: list[int] = []
        self._moved: Counter[int] = Counter()

    def forget(self) -> None:
        """Drop the counts after a change of plan; the next read counts anew."""
        self._plan = None
        self._moved.clear()

    def note(self, bits: int, count: int) -> None:
        """Note a change of the number of addresses in these sets; `count` is negative for fewer."""
        if self._plan is not None:
            self._moved[bits] += count

    def of(self, number: int, plan: Plan, addresses_by_sets: Mapping[int, int]) -> int:
        """The count of a list of this plan. `addresses_by_sets` has the present number of addresses per combination
        of sets."""
        if plan is not self._plan:
            self._plan, self._counts = plan, [0] * len(plan.lists)
            self._moved = Counter(addresses_by_sets)
        if self._moved:
            for bits, count in self._moved.items():
                if count:
                    for at in range(len(self._counts)):
                        self._counts[at] += count if plan.allows(at, bits) else 0
            self._moved.clear()
        return self._counts[number]
