"""Wait lists of a replica: callers wait for answers, queries for positions, drivers for any change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple, Self

from eventstore.deadlines import Deadlines, MakeError
from eventstore.folding.fold import Outcome
from eventstore.folding.ledger import LedgerEntry
from eventstore.log import Partition

_CANCELLED_MAX = 100
"""Maximum by which cancelled waiters may outnumber live ones in a heap."""


class Answer(NamedTuple):
    """The outcome of a command and the position of its record: the first record that took effect or was refused."""

    outcome: Outcome
    partition: Partition
    offset: int


class AnswerWaitList:
    """Waiters by the body of the command they appended: the answer to another command with the same id wakes none of
    them.
    """

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[asyncio.Future[Answer]]] = {}
        self._deadlines = Deadlines()

    def expect(self, content: bytes, timeout_s: float, make_error: MakeError) -> asyncio.Future[Answer]:
        """A future for the answer to the command with this body; it fails at the time limit. Pass it to `forget` when
        done.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._deadlines.put(future, timeout_s, make_error)
        self._waiting.setdefault(content, []).append(future)
        return future

    def forget(self, content: bytes, future: asyncio.Future[Answer]) -> None:
        """Remove a waiter."""
        self._deadlines.drop(future)
        waiting = self._waiting[content]
        waiting.remove(future)
        if not waiting:
            del self._waiting[content]

    def resolve(self, partition: Partition, entries: Iterable[LedgerEntry]) -> None:
        """Resolve the waiters with the first answer; a later copy of the record has the same one."""
        if not self._waiting:
            return
        for entry in entries:
            for future in self._waiting.get(entry.content, ()):
                if not future.done():
                    future.set_result(Answer(entry.outcome, partition, entry.offset))


class PositionWaitList:
    """Waiters for partitions to be folded up to a position, the nearest first."""

    def __init__(self) -> None:
        self._partitions: dict[Partition, _PartitionWaitList] = {}
        self._ticket = count()

    async def wait_for_position(self, partition: Partition, position: int) -> None:
        """Wait until `advance` has reached this position."""
        waiters = self._partitions.setdefault(partition, _PartitionWaitList())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(waiters.heap, (position, next(self._ticket), future))
        waiters.waiting += 1
        try:
            await future
        finally:
            waiters.waiting -= 1
            waiters.drop_cancelled()

    def advance(self, partition: Partition, position: int) -> None:
        """Wake the waiters of a partition that is folded up to this position."""
        heap = waiters.heap if (waiters := self._partitions.get(partition)) else ()
        while heap and heap[0][0] <= position:
            _, _, future = heappop(heap)
            if not future.done():
                future.set_result(None)


class _PartitionWaitList:
    """Waiters for one partition. Cancelled waiters stay in the heap until they outnumber live ones: removing thousands
    one by one blocked the loop for most of a second."""

    __slots__ = ("heap", "waiting")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self.waiting = 0

    def drop_cancelled(self) -> None:
        if len(self.heap) > 2 * self.waiting + _CANCELLED_MAX:
            self.heap[:] = [entry for entry in self.heap if not entry[2].done()]
            heapify(self.heap)


class Watch:
    """The partitions that were folded further since the last call of `changed`. Close it when done."""

    def __init__(self, topics: frozenset[str], on_close: Callable[[Watch], None]) -> None:
        self._topics = topics
        self._on_close = on_close
        self._changed: set[Partition] = set()
        self._any = asyncio.Event()

    async def changed(self) -> set[Partition]:
        """The partitions that were folded further since the last call; waits until there is one."""
        await self._any.wait()
        self._any.clear()
        changed, self._changed = self._changed, set()
        return changed

    def notify(self, partition: Partition) -> None:
        """Record that this partition was folded further."""
        if partition.topic in self._topics:
            self._changed.add(partition)
            self._any.set()

    def close(self) -> None:
        """Stop the notifications."""
        self._on_close(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
