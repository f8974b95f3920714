"""The order of trials: the named faults, then random pairs until enough of them have evidence."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tests.faults.fault import Fault
from tests.faults.report import Report
from tests.faults.run import TrialResult

HIDDEN_IN_A_ROW = 5
"""The maximum number of consecutive random pairs without evidence of both faults. About one pair in ten hides a fault,
and one in four on the embedded engine or a busy machine. A longer series means that the faults have no effect.
"""


class Trials:
    """Runs trials on one world and reports them. No trial starts after `until_s` of the monotonic clock."""

    def __init__(
        self,
        run_trial: Callable[[Sequence[Fault]], Awaitable[TrialResult]],
        report: Report,
        until_s: float = float("inf"),
    ) -> None:
        self._run_trial = run_trial
        self._report = report
        self._until_s = until_s

    @property
    def _is_over(self) -> bool:
        return time.monotonic() > self._until_s

    async def run_named(self, plan: Iterable[Sequence[Fault]]) -> None:
        """Run a trial for each of these sets of faults. A fault without evidence fails."""
        for faults in plan:
            if self._is_over:
                return
            self._report.trial_started(faults)
            self._report.trial_finished(await self._run_trial(faults))

    async def run_drawn(self, pairs: Iterable[Sequence[Fault]], count: int) -> None:
        """Run trials until `count` pairs have counted. A pair in which one fault hides the other does not count."""
        done = hidden_in_a_row = 0
        for pair in pairs:
            if done == count or self._is_over:
                return
            self._report.trial_started(pair)
            result = await self._run_trial(pair)
            hidden_in_a_row = 0 if result.has_evidence else hidden_in_a_row + 1
            if 0 < hidden_in_a_row <= HIDDEN_IN_A_ROW and not result.plane_problems:
                self._report.pair_hidden(result)
            else:
                self._report.trial_finished(result)
                done += 1
