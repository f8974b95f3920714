"""Deadlines: when one of a fold has come, somebody must say so, as the fold has no clock.

The statement counts only if its own append time has reached the deadline, so a timer whose clock is ahead does no harm:
it says it again a little later. By rank, and only as long as the fold still has the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from drivers.following import Following
from eventstore.beacons import Ranks
from eventstore.errors import FatalError, PlaneError
from eventstore.ids import statement
from eventstore.log import ZONES, Partition
from eventstore.replica import Replica
from projections.dpus import STEP_DEADLINE
from projections.states import States
from schemas.events import DeadlinePassed

logger = logging.getLogger(__name__)

TURN_S = 0.3
"""Each rank waits so much longer than the one before."""
AGAIN_S = 2.0
"""A statement that changed nothing is made again after this long, with jitter."""
APPEND_TIMEOUT_S = 5.0


class Deadline(NamedTuple):
    """One that a fold has: when, of what kind, about whom, and the key of the records about it."""

    deadline_ms: int
    kind: str
    subject: str
    key: str


class Timers:
    """Serves every zones partition until `run` is cancelled."""

    def __init__(
        self, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random, role: str = "api"
    ) -> None:
        self.stated = 0
        self.failures = 0
        self._replica = replica
        self._states = States(replica)
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._role = role
        self._actor = f"timers/{replica.name}"
        self._following = Following(replica, ZONES)

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._following.run())
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._serve(partition))

    async def _serve(self, partition: Partition) -> None:
        while True:
            next_ms = min((deadline.deadline_ms for deadline in self._deadlines(partition)), default=None)
            wait_s = None if next_ms is None else (next_ms - self._now_ms()) / 1_000
            if wait_s is None or wait_s > 0:
                await self._sleep(partition, wait_s)
                continue
            due = [found for found in self._deadlines(partition) if found.deadline_ms <= self._now_ms()]
            for deadline in sorted(due):
                await self._state(partition, deadline)

    async def _sleep(self, partition: Partition, wait_s: float | None) -> None:
        """Until then, or until the fold changed, which may have brought an earlier deadline."""
        try:
            async with asyncio.timeout(wait_s):
                await self._following.changed(partition)
        except TimeoutError:
            return

    async def _state(self, partition: Partition, deadline: Deadline) -> None:
        turn_s = self._ranks.rank(deadline.subject, self._role) * TURN_S
        if turn_s and await self._following.until(partition, lambda: self._is_over(partition, deadline), turn_s):
            return
        if self._is_over(partition, deadline):
            return
        envelope = statement(deadline.subject, self._actor, self._now_ms())
        event = DeadlinePassed(envelope, deadline.kind, deadline.deadline_ms)
        try:
            await self._replica.state_fact(partition, deadline.key.encode(), event, timeout_s=APPEND_TIMEOUT_S)
            self.stated += 1
            logger.info("deadline passed partition=%s subject=%s", partition, deadline.subject)
        except FatalError:
            raise
        except PlaneError as error:
            self.failures += 1
            logger.warning("append failed partition=%s subject=%s: %s", partition, deadline.subject, error)
        again_s = AGAIN_S * self._rng.uniform(0.5, 1.5)
        await self._following.until(partition, lambda: self._is_over(partition, deadline), again_s)

    def _deadlines(self, partition: Partition) -> Iterator[Deadline]:
        state = self._states.zones_at(partition)
        for name in state.dpu_index.running:
            dpu = state.dpus.rows[name]
            yield Deadline(dpu.deadline_ms, STEP_DEADLINE, name, dpu.zone)

    def _is_over(self, partition: Partition, deadline: Deadline) -> bool:
        return deadline not in self._deadlines(partition)
