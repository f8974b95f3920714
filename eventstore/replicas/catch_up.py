"""Catching up: a partition is folded up to the end that the log has now.

A process may lag: it was stopped for a while, its host is overloaded, or its broker is slow. Its fold then shows an
earlier state as if it were the present one. Before it changes something outside the log, it asks for the end of the
partition and folds up to it. The fold then has every record that any replica had folded before the question.
"""

from __future__ import annotations

import asyncio
import logging

from eventstore.errors import TransientError
from eventstore.log import Partition
from eventstore.replicas.replica import Replica

logger = logging.getLogger(__name__)

END_S = 5.0
"""Time limit of the question for the end of the partition."""
FOLD_S = 10.0
"""Time limit of folding up to the end."""
_LOGGED = frozenset((1, 10, 100, 1_000))


class CatchUp:
    """Folds a partition up to its present end. Callers share a question to the log that begins after their calls.

    `failures` counts the questions that the log did not answer in time, and the ends that were not folded in time.
    """

    def __init__(self, replica: Replica, partition: Partition) -> None:
        self.failures = 0
        self._replica = replica
        self._partition = partition
        self._lock = asyncio.Lock()
        self._asked = 0
        self._end: int | None = None
        """The answer to the last question; None if there was no answer."""

    async def __call__(self) -> bool:
        """Return True once everything is folded that was in the partition at the time of the call. Returns False if
        that takes too long, for example because the log is unavailable."""
        end = await self._end_after_call()
        if end is None:
            return False
        try:
            await self._replica.wait_for_position(self._partition, end, timeout_s=FOLD_S)
        except TransientError as error:
            self._failed(error)
            return False
        return True

    async def _end_after_call(self) -> int | None:
        """The end of the partition by an answer whose question began after this call."""
        asked = self._asked
        async with self._lock:
            if self._asked == asked:
                self._asked += 1
                self._end = await self._ask()
            return self._end

    async def _ask(self) -> int | None:
        try:
            async with asyncio.timeout(END_S):
                return await self._replica.log.end(self._partition)
        except (TransientError, TimeoutError) as error:
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures in _LOGGED:
            about = {"partition": self._partition, "reason": str(error) or type(error).__name__}
            logger.warning("partition not folded up to its end in time, retrying before the next write", extra=about)
