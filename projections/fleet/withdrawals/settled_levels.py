"""Settled levels: the number of addresses that a list has allowed for a while, the base of the budgets.

If a budget were a share of the present level, a client could inflate the budget. For example, nine fake nodes per real
node could join: a budget of a tenth of the list would then allow the removal of all real nodes. So a share is of the
*settled* level: the smallest level of the list at the end of any minute of the last hour. New addresses count once they
have been there for an hour.

A level is sampled once per minute of fold time, before the first record of a later minute changes it, and only if it
differs from the sample before: a list that does not change costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

STEP_MS = 60_000
SETTLED_MS = 3_600_000
"""Minimum time for which an address must be allowed before it counts."""


class LevelHistory(msgspec.Struct, frozen=True, array_like=True):
    """Levels of one list as (start of a step, level at its end), oldest first.

    A sample is the level at the end of its step and of all later steps before the next sample. Before the first sample,
    the list allowed nothing.
    """

    samples: tuple[tuple[int, int], ...] = ()

    def sampled(self, step_ms: int, level: int) -> LevelHistory:
        """This history with the level at the end of a step, and without samples that are no longer needed."""
        if level == (self.samples[-1][1] if self.samples else 0):
            return self
        kept = self._since(step_ms + STEP_MS - SETTLED_MS)
        if kept and kept[-1][0] >= step_ms:
            return LevelHistory((*kept[:-1], (kept[-1][0], min(level, kept[-1][1]))))
        return LevelHistory((*kept, (step_ms, level)))

    def rewind(self, step_ms: int) -> LevelHistory:
        """This history after the clock was set back to `step_ms`: all samples from then on become one sample at
        `step_ms`, with their smallest level.
        """
        ahead = [level for start, level in self.samples if start >= step_ms]
        if not ahead:
            return self
        return LevelHistory(
            (*((start, level) for start, level in self.samples if start < step_ms), (step_ms, min(ahead)))
        )

    def _since(self, time_ms: int) -> Sequence[tuple[int, int]]:
        """The samples that determine the levels after this time: the last sample before it, and all later ones."""
        first = next((n for n, (start, _) in enumerate(self.samples) if start + STEP_MS > time_ms), len(self.samples))
        return self.samples[max(0, first - 1) :]


NO_LEVELS = LevelHistory()


class BudgetBase(NamedTuple):
    """The base of a budget's share.

    `settled` is the smallest level of the last hour. It is 0 for a list that was first sampled within this hour.
    `least` is the smallest level above 0 in this hour.
    """

    settled: int
    least: int


def base_of(
    levels: LevelHistory, *, sampled_ms: int, level: int, now_ms: int, spent: Iterable[tuple[int, int]] = ()
) -> BudgetBase:
    """The base of a list which now has this level, and was last sampled before the step `sampled_ms`.

    `spent` is the budget's recent use, as (start of a bucket, count). A budget is a share of the level before these
    changes. So the changes that were counted up to the end of a step are added to the level at the end of that step.
    """
    horizon_ms, counts = now_ms - SETTLED_MS, list(spent)

    def with_spent(start_ms: int, count: int) -> int:
        return count + sum(gone for at_ms, gone in counts if at_ms < start_ms + STEP_MS)

    relevant = levels._since(horizon_ms)
    if sampled_ms + STEP_MS <= horizon_ms:  # no change within the time that counts
        relevant = [(sampled_ms, level)]
    found = [with_spent(start, count) for start, count in relevant]
    found.append(with_spent(now_ms, level))
    is_settled = bool(relevant) and relevant[0][0] + STEP_MS <= horizon_ms
    return BudgetBase(min(found) if is_settled else 0, min(filter(None, found), default=0))


def merged_levels(histories: Iterable[LevelHistory]) -> LevelHistory:
    """The history of a list that several lists become: at each time their smallest level that is not 0."""
    distinct = list(dict.fromkeys(histories))
    if len(distinct) == 1:
        return distinct[0]
    samples: list[tuple[int, int]] = []
    for start in sorted({start for levels in distinct for start, _ in levels.samples}):
        present = [count for levels in distinct if (count := _at(levels, start))]
        if not samples or samples[-1][1] != min(present, default=0):
            samples.append((start, min(present, default=0)))
    return LevelHistory(tuple(samples))


def _at(levels: LevelHistory, step_ms: int) -> int:
    return next((count for start, count in reversed(levels.samples) if start <= step_ms), 0)


def with_samples(rows: Mapping[str, LevelHistory], now: Mapping[str, int], step_ms: int) -> dict[str, LevelHistory]:
    """New rows for the lists whose level differs from their last sample: their histories, with this level as the sample
    of the step."""
    found = {}
    for key, level in now.items():
        before = rows.get(key, NO_LEVELS)
        after = before.sampled(step_ms, level)
        if after is not before:
            found[key] = after
    return found
