"""Deadlines: when one of a fold has come, somebody must say so, as the fold has no clock.

The statement counts only if its own append time has reached the deadline, so a timer whose clock is ahead ends nothing
too early. It finds out by the first one that does not count, goes by the log's clock then, and looks at its own again
every minute. By rank, and only as long as the fold still has the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from drivers.following import Following
from drivers.statements import Statements
from eventstore.ids import statement
from eventstore.log import ZONES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.states import States
from projections.zones.dpus import STEP_DEADLINE
from schemas.events import DeadlinePassed

logger = logging.getLogger(__name__)

AGAIN_S = 2.0
"""A statement that changed nothing is made again after this long, with jitter."""

BELIEVED_S = 60.0
"""So long we go by the log's clock once it has shown that ours is ahead; but ours may be right again, or the log's
behind."""


class Deadline(NamedTuple):
    """One that a fold has: when, of what kind, about whom, and the key of the records about it."""

    deadline_ms: int
    kind: str
    subject: str
    key: str


class LogTime(NamedTuple):
    """What the log's clock showed at a moment of the loop's."""

    time_ms: int
    at_s: float


class Timers:
    """Serves every zones partition until `run` is cancelled."""

    def __init__(self, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random) -> None:
        self.stated = 0
        self._replica = replica
        self._states = States(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"timers/{replica.name}"
        self._log_times: dict[Partition, LogTime] = {}
        self._following = Following(replica, ZONES)
        self.statements = Statements(replica, ranks, self._following, "api")

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._following.run())
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._serve(partition))

    async def _serve(self, partition: Partition) -> None:
        while True:
            next_ms = min((deadline.deadline_ms for deadline in self._deadlines(partition)), default=None)
            wait_s = None if next_ms is None else (next_ms - self._time_ms(partition)) / 1_000
            if self._replica.folded(partition).halted:  # what we say would not show, and be said for ever
                wait_s = None
            if wait_s is None or wait_s > 0:
                await self._sleep(partition, wait_s)
                continue
            for deadline in sorted(self._deadlines(partition)):
                if deadline.deadline_ms <= self._time_ms(partition):
                    await self._state(partition, deadline)

    def _time_ms(self, partition: Partition) -> int:
        """What time it is: by our clock, or by the log's while we believe that ours is ahead of it."""
        heard = self._log_times.get(partition)
        if heard is None:
            return self._now_ms()
        passed_s = asyncio.get_running_loop().time() - heard.at_s
        if passed_s >= BELIEVED_S:
            del self._log_times[partition]
            return self._now_ms()
        return min(self._now_ms(), heard.time_ms + int(passed_s * 1_000))

    async def _sleep(self, partition: Partition, wait_s: float | None) -> None:
        """Until then, or until the fold changed, which may have brought an earlier deadline. Clocks are put right
        meanwhile, so we look at them now and then."""
        wait_s = None if wait_s is None else min(wait_s, BELIEVED_S)
        try:
            async with asyncio.timeout(wait_s):
                await self._following.changed(partition)
        except TimeoutError:
            return

    async def _state(self, partition: Partition, deadline: Deadline) -> None:
        def is_over() -> bool:
            return deadline not in self._deadlines(partition)

        if await self.statements.is_anothers(deadline.subject, partition, is_over) or is_over():
            return
        envelope = statement(deadline.subject, self._actor, self._now_ms())
        event = DeadlinePassed(envelope, deadline.kind, deadline.deadline_ms)
        if is_appended := await self.statements.append(partition, deadline.key, event):
            self.stated += 1
            logger.info("deadline passed", extra={"partition": partition, "subject": deadline.subject})
        await self._following.until(partition, is_over, AGAIN_S * self._rng.uniform(0.5, 1.5))
        log_ms = self._replica.folded(partition).time_ms
        if is_appended and log_ms < deadline.deadline_ms:
            self._log_times[partition] = LogTime(log_ms, asyncio.get_running_loop().time())

    def _deadlines(self, partition: Partition) -> Iterator[Deadline]:
        state = self._states.zones_at(partition)
        for name in state.dpu_index.running:
            dpu = state.dpus.rows[name]
            yield Deadline(dpu.deadline_ms, STEP_DEADLINE, name, dpu.zone)
