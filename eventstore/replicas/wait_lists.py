"""Wait lists of a replica. Callers wait for the answers to their commands. Queries and drivers wait until partitions
are folded further."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from eventstore.deadlines import Deadlines, MakeError
from eventstore.folding.fold import Outcome
from eventstore.folding.ledger import LedgerEntry
from eventstore.log import Partition


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
        """Resolve the waiters with the first answer. Later copies of the record have the same answer."""
        if not self._waiting:
            return
        for entry in entries:
            for future in self._waiting.get(entry.content, ()):
                if not future.done():
                    future.set_result(Answer(entry.outcome, partition, entry.offset))


class FoldWaitList:
    """Tasks that wait until partitions are folded further.

    A task reads the folded state, and waits here until it may have changed. It does not await between the read and the
    wait, so it misses no change. The replica evaluates the predicates after each slice of a partition: if each waiting
    task did so, every record of a busy plane would wake all tasks, and hardly any of them would have something to do.
    """

    def __init__(self) -> None:
        self._waiting: dict[Partition, dict[asyncio.Future[None], Callable[[], bool]]] = {}

    def wake(self, *partitions: Partition) -> None:
        """Wake the tasks that wait for these partitions and whose predicate holds. An exception of a predicate is
        raised in the task that waits for it.
        """
        for partition in partitions:
            for woken, predicate in self._waiting.get(partition, _NO_WAITERS).items():
                if woken.done():
                    continue
                try:
                    is_met = predicate()
                except Exception as error:
                    woken.set_exception(error)
                else:
                    if is_met:
                        woken.set_result(None)

    async def changed(self, *partitions: Partition) -> None:
        """Return when one of these partitions is folded further."""
        await self._wait(partitions, _always)

    async def wait_for(
        self, predicate: Callable[[], bool], *partitions: Partition, timeout_s: float | None = None
    ) -> bool:
        """Return True when the predicate holds, or False at the time limit.

        The predicate may depend on the folds of these partitions only: it is evaluated when one of them is folded
        further.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not predicate():
                    await self._wait(partitions, predicate)
        except TimeoutError:
            return predicate()
        return True

    async def _wait(self, partitions: Sequence[Partition], predicate: Callable[[], bool]) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._waiting.setdefault(partition, {})[woken] = predicate
        try:
            await woken
        finally:
            for partition in partitions:
                del self._waiting[partition][woken]


_NO_WAITERS: Mapping[asyncio.Future[None], Callable[[], bool]] = {}


def _always() -> bool:
    return True


class Watch:
    """The partitions that were folded further since the last call of `changed`. Close it when done."""

    def __init__(self, topics: frozenset[str], on_close: Callable[[Watch], None]) -> None:
        self._topics = topics
        self._on_close = on_close
        self._changed: set[Partition] = set()
        self._any = asyncio.Event()

    async def changed(self) -> set[Partition]:
        """Wait until a partition was folded further since the last call. Returns all such partitions."""
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
