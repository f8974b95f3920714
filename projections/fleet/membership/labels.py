"""Interned label sets: a join names its label set by number, and policies are matched once per label set, not per node.

Thousands of nodes share the same few label sets. The bits of a label set stand for the rule sets of the plan that
contain its nodes. They are computed once. So a join costs one lookup, whatever the number of policies, and a change of
a policy costs one match per label set. Label sets with equal bits form a group; numpy counts and selects members by
group.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from projections.rules.lists import Plan
from projections.rules.policies import Selector, selector


class LabelSets:
    """Label sets in use, by number; numbers are reused and never leave the fold."""

    def __init__(self) -> None:
        self.sets: list[dict[str, str]] = []
        self.bits: list[int] = []
        self.group_bits: list[int] = []
        self._numbers: dict[Selector, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []
        self._groups: dict[int, int] = {}
        self._group_sizes: list[int] = []
        self._free_groups: list[int] = []
        self._group_of = np.zeros(64, np.int32)

    def known(self, labels: Mapping[str, str], plan: Plan) -> int:
        """The bits of a label set, whether or not a member has it now."""
        number = self._numbers.get(selector(labels))
        return plan.bits_of(labels) if number is None else self.bits[number]

    def intern(self, labels: Mapping[str, str], plan: Plan) -> int:
        """The number of a label set, stable while the set is in use."""
        key = selector(labels)
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else self._grow()
            self._numbers[key] = number
            self.sets[number] = dict(key)
            self._classify(number, plan)
        return number

    def use(self, number: int, count: int) -> None:
        """Add `count` members (negative for fewer) to this label set. A set without members is removed.

        A removed set gets group 0 at once, because its former group may not exist under the next plan. The entry of a
        removed set is still read: the label number of a free slot is -1, which selects the last entry of `_group_of`.
        """
        self._uses[number] += count
        if not self._uses[number]:
            del self._numbers[selector(self.sets[number])]
            self._free.append(number)
            self._ungroup(number)

    def replan(self, plan: Plan) -> None:
        """Match every label set anew."""
        self._groups.clear()
        self.group_bits.clear()
        self._group_sizes.clear()
        self._free_groups.clear()
        for number in self._numbers.values():
            self._classify(number, plan)

    def groups_in(self, bit: int) -> npt.NDArray[np.bool_]:
        """Per group, whether the rule set with this bit contains its nodes."""
        return np.array([bits >> bit & 1 for bits in self.group_bits], np.bool_)

    def groups_of(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The groups of label sets, by their numbers."""
        return self._group_of[numbers]

    def uses(self) -> dict[int, int]:
        """The number of members per label set."""
        return {number: self._uses[number] for number in self._numbers.values()}

    def _grow(self) -> int:
        self.sets.append({})
        self.bits.append(0)
        self._uses.append(0)
        if len(self.sets) > len(self._group_of):
            self._group_of = np.concatenate((self._group_of, np.zeros_like(self._group_of)))
        return len(self.sets) - 1

    def _classify(self, number: int, plan: Plan) -> None:
        bits = self.bits[number] = plan.bits_of(self.sets[number])
        group = self._groups.get(bits)
        if group is None:
            group = self._groups[bits] = self._free_groups.pop() if self._free_groups else self._grow_groups()
            self.group_bits[group] = bits
        self._group_sizes[group] += 1
        self._group_of[number] = group

    def _grow_groups(self) -> int:
        self.group_bits.append(0)
        self._group_sizes.append(0)
        return len(self.group_bits) - 1

    def _ungroup(self, number: int) -> None:
        """Remove a label set from its group, and remove the group if it has no other label set. Clients can create any
        number of combinations of rule sets, and thus of groups, so empty groups must not remain."""
        bits, group = self.bits[number], int(self._group_of[number])
        self._group_sizes[group] -= 1
        if not self._group_sizes[group]:
            del self._groups[bits]
            self.group_bits[group] = 0
            self._free_groups.append(group)
        self.bits[number] = self._group_of[number] = 0
