"""The decisions of one slice of folding, on their way from the fold to the writer of the decisions topic.

The replica waits until the buffer is empty before it folds the next slice. So the buffer holds the decisions of at most
one slice of one partition (`ReplicaLimits` bounds a slice).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from eventstore.folding.decision_listener import DecidedRecord, DecidedRun, decided_records_of


class DecisionBuffer:
    """A DecisionSink that one writer empties."""

    def __init__(self) -> None:
        self._decisions: list[DecidedRecord | DecidedRun] = []
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    # -- the side of the replica

    def on_decision(self, decided: DecidedRecord | DecidedRun) -> None:
        self._decisions.append(decided)

    async def drained(self) -> None:
        if self._decisions:
            self._emptied.clear()
            self._filled.set()
            await self._emptied.wait()

    # -- the side of the writer

    async def filled(self) -> None:
        """Return when the replica waits for decisions to be written."""
        await self._filled.wait()

    def decisions(self) -> Iterator[DecidedRecord]:
        """All decisions in the order of their records. A DecidedRun yields its records one by one."""
        for decided in self._decisions:
            if isinstance(decided, DecidedRecord):
                yield decided
            else:
                yield from decided_records_of(decided)

    def empty(self) -> None:
        """Drop all decisions after they were written. The replica then folds the next slice."""
        self._decisions.clear()
        self._filled.clear()
        self._emptied.set()
