"""Waiting for what the folds say: one watch, shared by every task of a driver.

A driver's tasks look at the states, act if something is to be done, and wait until the partitions they look at were
folded further. Between the look and the wait nothing awaits, so no change can slip through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from eventstore.log import Partition
from eventstore.replicas.replica import Replica


class Following:
    """Run it beside the tasks that wait."""

    def __init__(self, replica: Replica, *topics: str) -> None:
        self._replica = replica
        self._topics = topics
        self._waiting: dict[Partition, dict[asyncio.Future[None], Callable[[], bool]]] = {}

    async def run(self) -> None:
        with self._replica.watch(*self._topics) as watch:
            while True:
                self.wake(*sorted(await watch.changed()))

    def wake(self, *partitions: Partition) -> None:
        """Let who waits for these look again."""
        for partition in partitions:
            for woken, holds in self._waiting.get(partition, _NOBODY).items():
                if not woken.done() and holds():
                    woken.set_result(None)

    async def changed(self, *partitions: Partition) -> None:
        """Return when one of these was folded further."""
        await self._woken(partitions, _anything)

    async def when(self, holds: Callable[[], bool], *partitions: Partition) -> None:
        """Return when something holds that only folding one of these further can make hold.

        Looked at as they are folded, and by no task of its own: each record of a busy plane would wake all of them, and
        hardly any for something to do.
        """
        while not holds():
            await self._woken(partitions, holds)

    async def _woken(self, partitions: Sequence[Partition], holds: Callable[[], bool]) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._waiting.setdefault(partition, {})[woken] = holds
        try:
            await woken
        finally:
            for partition in partitions:
                del self._waiting[partition][woken]

    async def until(self, partition: Partition, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds of a partition; False if it does not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.when(holds, partition)
        except TimeoutError:
            return holds()
        return True


_NOBODY: Mapping[asyncio.Future[None], Callable[[], bool]] = {}


def _anything() -> bool:
    return True
