"""In which order faults are tried: those that are named, then random pairs until enough have shown themselves."""

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
    """Tries what it is given on one world, and reports it. It begins nothing after a moment of the monotonic clock."""

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
        """Each of these; what nothing shows fails."""
        for faults in plan:
            if self._is_over:
                return
            self._report.tries(faults)
            self._report.tried(await self._attempt(faults))

    async def drawn(self, pairs: Iterable[Sequence[Fault]], wanted: int) -> None:
        """So many of these. One of a pair may hide the other and be right otherwise: it does not count then."""
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
