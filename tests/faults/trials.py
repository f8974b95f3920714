"""The order of trials: the named faults, then random pairs until enough have evidence."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tests.faults.fault import Fault
from tests.faults.report import Report
from tests.faults.run import TrialResult

HIDDEN_IN_A_ROW = 5
"""Of pairs; one in some ten hides one of its two, and where all of the plane is one process, or the machine is busy,
one in four. More than these in a row, and they do not happen at all."""


class Trials:
    """Runs trials on one world, and reports them. No trial starts after a given moment of the monotonic clock."""

    def __init__(
        self,
        attempt: Callable[[Sequence[Fault]], Awaitable[TrialResult]],
        report: Report,
        until_s: float = float("inf"),
    ) -> None:
        self._attempt = attempt
        self._report = report
        self._until_s = until_s

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._until_s

    async def named(self, plan: Iterable[Sequence[Fault]]) -> None:
        """Try each of these; a fault without evidence fails."""
        for faults in plan:
            if self._is_over:
                return
            self._report.tries(faults)
            self._report.tried(await self._attempt(faults))

    async def drawn(self, pairs: Iterable[Sequence[Fault]], wanted: int) -> None:
        """Try so many of these. A pair in which one fault hides the other does not count."""
        done = hidden_in_a_row = 0
        for pair in pairs:
            if done == wanted or self._is_over:
                return
            self._report.tries(pair)
            tried = await self._attempt(pair)
            hidden_in_a_row = 0 if tried.is_shown else hidden_in_a_row + 1
            if 0 < hidden_in_a_row <= HIDDEN_IN_A_ROW and not tried.wrong:
                self._report.hid(tried)
            else:
                self._report.tried(tried)
                done += 1
