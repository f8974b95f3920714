"""Waiting for what the folds say: one watch, shared by every task of a driver.

A driver's tasks look at the states, act if something is to be done, and wait until the partitions they look at were
folded further. Between the look and the wait nothing awaits, so no change can slip through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from eventstore.log import Partition
from eventstore.replicas.replica import Replica


class Following:
    """Run it beside the tasks that wait."""

    def __init__(self, replica: Replica, *topics: str) -> None:
        self._replica = replica
        self._topics = topics
        self._waiting: dict[Partition, dict[asyncio.Event, None]] = {}

    async def run(self) -> None:
        with self._replica.watch(*self._topics) as watch:
            while True:
                self.wake(*sorted(await watch.changed()))

    def wake(self, *partitions: Partition) -> None:
        """Let who waits for these look again."""
        for partition in partitions:
            for event in self._waiting.get(partition, ()):
                event.set()

    async def changed(self, *partitions: Partition) -> None:
        """Return when one of these was folded further."""
        event = asyncio.Event()
        for partition in partitions:
            self._waiting.setdefault(partition, {})[event] = None
        try:
            await event.wait()
        finally:
            for partition in partitions:
                del self._waiting[partition][event]

    async def until(self, partition: Partition, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds of a partition; False if it does not within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self.changed(partition)
        except TimeoutError:
            return holds()
        return True
