"""Waiting for a change of the folded state: one watch, shared by all tasks of a driver.

A driver's tasks read the folded states, act on them, and wait until one of their partitions is folded further. A task
does not await between the read and the wait, so no change is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from eventstore.log import Partition
from eventstore.replicas.replica import Replica


class FoldWatcher:
    """Wakes the tasks that wait for partitions. Its `run` is a task beside them."""

    def __init__(self, replica: Replica, *topics: str) -> None:
        self._replica = replica
        self._topics = topics
        self._waiting: dict[Partition, dict[asyncio.Future[None], Callable[[], bool]]] = {}

    async def run(self) -> None:
        with self._replica.watch(*self._topics) as watch:
            while True:
                self.wake(*sorted(await watch.changed()))

    def wake(self, *partitions: Partition) -> None:
        """Wake the tasks that wait for these partitions and whose predicate holds."""
        for partition in partitions:
            for woken, predicate in self._waiting.get(partition, _NO_WAITERS).items():
                if not woken.done() and predicate():
                    woken.set_result(None)

    async def changed(self, *partitions: Partition) -> None:
        """Return when one of these partitions is folded further."""
        await self._wait(partitions, _always)

    async def wait_for(self, predicate: Callable[[], bool], *partitions: Partition) -> None:
        """Return when the predicate holds. Only folding one of these partitions further may make it hold.

        `run` evaluates it as records are folded. If each waiting task did so, every record of a busy plane would wake
        all tasks, and hardly any of them would have something to do.
        """
        while not predicate():
            await self._wait(partitions, predicate)

    async def _wait(self, partitions: Sequence[Partition], predicate: Callable[[], bool]) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._waiting.setdefault(partition, {})[woken] = predicate
        try:
            await woken
        finally:
            for partition in partitions:
                del self._waiting[partition][woken]

    async def wait_with_timeout(self, partition: Partition, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the predicate holds in a partition. Returns False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_for(predicate, partition)
        except TimeoutError:
            return predicate()
        return True


_NO_WAITERS: Mapping[asyncio.Future[None], Callable[[], bool]] = {}


def _always() -> bool:
    return True
