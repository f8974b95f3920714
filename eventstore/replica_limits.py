"""The limits of a replica: how much it folds or saves before it yields the event loop, and how often it saves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """How much a replica does before it yields the event loop, and how often it saves and checks."""

    slice_s: float = 0.003
    """Seconds of folding before the event loop is yielded. A slice may exceed this by one record, and stays under 5
    ms."""

    slice_records: int = 1_000
    """Records of folding before the event loop is yielded: the bound that applies on a virtual clock."""

    mailbox_batches: int = 16
    """Maximum number of batches that are read ahead of the fold."""

    save_every_s: float = 1.0
    """Seconds between saves: the amount of log that a restart folds again."""

    save_rows: int = 5_000
    """Changed rows at which a partition is saved before the next regular save, which keeps a write under 5 ms."""

    save_rows_behind: int = 50_000
    """The same limit while catching up, when no caller waits: a row that changes often is then written once."""

    recheck_s: float = 60.0
    """Seconds between checks that the log was not replaced by another one."""

    ends_s: float = 5.0
    """Seconds between queries for the ends of the log. The lag is measured against these ends."""

    checkpoint_s: float = 600.0
    """Seconds between checkpoints of the saved state, for queries of the past (eventstore/state_store/checkpoints.py).
    """

    checkpoint_records: int = 250_000
    """Folded records between checkpoints, if this comes before the time."""


class LoopBudget:
    """The remaining budget of folding or saving before the event loop is yielded."""

    __slots__ = ("_clock", "_limits", "_until_s", "records")

    def __init__(self, limits: ReplicaLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start a new slice: other tasks have had the event loop."""
        self._until_s = self._clock() + self._limits.slice_s
        self.records = self._limits.slice_records

    def is_spent(self) -> bool:
        """Whether the slice is used up, in records or in time."""
        return self.records <= 0 or self._clock() >= self._until_s

    async def yield_if_spent(self, rows: int = 0) -> None:
        """Count saved rows, and yield the event loop if the budget is spent."""
        self.records -= rows
        if self.is_spent():
            await asyncio.sleep(0)
            self.reset()
