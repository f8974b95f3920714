"""Timers for deadlines: a fold has no clock, so a driver appends an event when a deadline of the fold has passed.

A deadline is an append time, and host clocks jump: a clock set one hour ahead would end every running step at once. A
timer therefore waits by the loop's monotonic clock. It computes the remaining time when the deadline is folded, from
fold times; the host's clock is used only for deadlines that exist at the start.

The event counts only if its own append time has reached the deadline. If the event was appended too early, the timer
computes the remaining wait from the fold time. Timers append in order of rank, and only while the fold has the
deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from drivers.internal_events import InternalEvents
from eventstore.ids import internal_envelope
from eventstore.log import ZONES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.fold_states import FoldStates
from projections.zones.dpus.decide import STEP_DEADLINE
from projections.zones.dpus.install_interfaces import step_of
from schemas.events import DeadlinePassed

logger = logging.getLogger(__name__)

GRACE_S = 1.0
"""Time between a deadline and the append of its event. A live provisioner ends its attempt itself within this time."""

RETRY_S = 2.0
"""Wait before an event that changed nothing is appended again, with jitter."""


class Deadline(NamedTuple):
    """A deadline of a fold: its append time, kind and subject, the key of the records about the subject, and the full
    time limit that began when the deadline was set.
    """

    deadline_ms: int
    kind: str
    subject: str
    key: str
    limit_ms: int


class Timers:
    """Appends the passed deadlines of every partition of topic zones until `run` is cancelled."""

    def __init__(self, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random) -> None:
        self.appended = 0
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"timers/{replica.name}"
        self._due_s: dict[Partition, dict[Deadline, float]] = {}
        self.internal_events = InternalEvents(replica, ranks, API)

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._serve(partition))

    async def _serve(self, partition: Partition) -> None:
        self._compute_due_times(partition, self._now_ms())
        while True:
            due_s, now_s = self._due_s[partition], asyncio.get_running_loop().time()
            wait_s = min(due_s.values()) - now_s if due_s else None
            if self._replica.folded(partition).halted:  # no event is folded: the same ones would be appended forever
                wait_s = None
            if wait_s is None or wait_s > 0:
                await self._sleep(partition, wait_s)
            else:
                for deadline in sorted(deadline for deadline, at_s in due_s.items() if at_s <= now_s):
                    await self._append_passed(partition, deadline)
            self._compute_due_times(partition, self._replica.folded(partition).time_ms)

    def _compute_due_times(self, partition: Partition, time_ms: int) -> None:
        """Compute when each deadline is due. A known deadline keeps its due time. For a new one, the remaining time is
        computed from `time_ms`, the present time."""
        known, now_s = self._due_s.get(partition, {}), asyncio.get_running_loop().time()
        due_s = self._due_s[partition] = {}
        for deadline in self._deadlines(partition):
            left_s = min(deadline.deadline_ms - time_ms, deadline.limit_ms) / 1_000 + GRACE_S
            due_s[deadline] = known.get(deadline, now_s + left_s)

    async def _sleep(self, partition: Partition, wait_s: float | None) -> None:
        """Wait for this time, or until the fold changes, which may add an earlier deadline."""
        try:
            async with asyncio.timeout(wait_s):
                await self._replica.fold_waits.changed(partition)
        except TimeoutError:
            return

    async def _append_passed(self, partition: Partition, deadline: Deadline) -> None:
        def is_over() -> bool:
            return deadline not in self._deadlines(partition)

        if await self.internal_events.wait_for_turn(deadline.subject, partition, is_over) or is_over():
            return
        envelope = internal_envelope(deadline.subject, self._actor, self._now_ms())
        event = DeadlinePassed(envelope, deadline.kind, deadline.deadline_ms)
        began_s = asyncio.get_running_loop().time()
        if is_appended := await self.internal_events.append(partition, deadline.key, event):
            self.appended += 1
            logger.info("deadline passed, event appended", extra={"partition": partition, "subject": deadline.subject})
        await self._replica.fold_waits.wait_for(is_over, partition, timeout_s=RETRY_S * self._rng.uniform(0.5, 1.5))
        log_ms = self._replica.folded(partition).time_ms
        if is_appended and log_ms < deadline.deadline_ms:
            self._due_s[partition][deadline] = began_s + (deadline.deadline_ms - log_ms) / 1_000

    def _deadlines(self, partition: Partition) -> Iterator[Deadline]:
        state = self._states.zones_at(partition)
        for name in state.dpu_index.running:
            dpu = state.dpus.rows[name]
            limit_ms = step_of(dpu.bmc_address, dpu.phase).deadline_ms
            yield Deadline(dpu.deadline_ms, STEP_DEADLINE, name, dpu.zone, limit_ms)
