"""How a replica paces itself: what it does at a time, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The bounds on what a replica does at a time."""

    slice_s: float = 0.003
    """Seconds of folding before others get the loop; with one more record it stays under 5 ms."""

    slice_records: int = 1_000
    """Records of folding before others get the loop: the bound that holds on a virtual clock."""

    mailbox_batches: int = 16
    """Batches read ahead of the fold."""

    save_every_s: float = 1.0
    """Seconds between saves: what a restart folds again."""

    save_rows: int = 5_000
    """Changed rows of a partition that are saved before the next second is over, which keeps a write under 5 ms."""

    save_rows_behind: int = 50_000
    """The same while catching up, when nobody waits: a row that changes often is then written once."""

    recheck_s: float = 60.0
    """Seconds between checks that the log is still the one that was folded."""

    ends_s: float = 5.0
    """Seconds between looks at how long the log is, for the lag."""

    checkpoint_s: float = 600.0
    """Seconds between checkpoints of the saved state, for looking back (eventstore/saved/archive.py)."""

    checkpoint_records: int = 250_000
    """Folded records between checkpoints, if so many come sooner."""


class Turn:
    """How much may still be folded, or saved, before others get the loop."""

    __slots__ = ("_clock", "_pace", "_until_s", "records")

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Others have had the loop."""
        self._until_s = self._clock() + self._pace.slice_s
        self.records = self._pace.slice_records

    def is_over(self) -> bool:
        """Whether others are due."""
        return self.records <= 0 or self._clock() >= self._until_s

    async def give_way(self, rows: int = 0) -> None:
        """So many rows have been saved: let others have the loop if they are due."""
        self.records -= rows
        if self.is_over():
            await asyncio.sleep(0)
            self.begin()
