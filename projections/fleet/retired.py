"""Sets that are in no list any more. Deltas from previous lists start from their content while it is retained."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from projections.fleet.rulesets import MIN_HISTORY_BYTES, RuleSet

MAX_RETIRED = 1_000
"""Retired sets in memory. Sets without a member take no bytes, so a bound on bytes alone would retain them all."""


class RetiredSets:
    """Retired sets, oldest first. They never take more bytes than the sets of present lists do."""

    def __init__(self) -> None:
        self._sets: deque[RuleSet] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sets)

    def add(self, found: RuleSet) -> None:
        """Add a set whose content was read and will not change any more."""
        self._sets.append(found)
        self._bytes += found.bytes()

    def bound(self, present: Iterable[RuleSet]) -> None:
        """Drop the oldest sets beyond the bounds; `present` are the sets of present lists."""
        most = MIN_HISTORY_BYTES
        if self._bytes > most:
            most = max(most, sum(found.bytes() for found in present))
        while self._bytes > most or len(self._sets) > MAX_RETIRED:
            oldest = self._sets.popleft()
            self._bytes -= oldest.bytes()
            oldest.forget()
