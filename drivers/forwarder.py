"""The forwarder: it appends the records that zones and fleet send to each other, in order of rank.

Each zones partition has three tasks: one forwards changes of the zone to fleet, one delivers the records in fleet's
outbox to the zone, and one confirms to the zone what fleet has folded, so that the zone prunes its outbox. All three
are functions of the states. Two concurrent forwarders are harmless: a fold has a mark, the end of the last range that
it accepted from the sender, and refuses a range that does not begin at the mark.

The forwards of all partitions go to the one partition of fleet, so the size of batches adapts to the speed of fleet.
The first change after an idle time is forwarded at once. The next forward waits as long as the last one took, times the
number of forwarding partitions, at most 0.5 s. About one forward is therefore under way at any time, and the joins of a
steady trickle share forwards. A partition has at most one outstanding forward. After an error or an append of unknown
outcome, the marks are read again, and the missing changes are forwarded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from drivers.internal_events import InternalEvents
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.fold_states import FoldStates
from projections.forwarding.fleet_to_zones import next_record
from projections.forwarding.zones_to_fleet import forward
from schemas.events import Event, MembershipChanged, OutboxAcknowledged

WINDOW_MAX_S = 0.5
"""Maximum time after a forward in which changes gather for the next one."""
LANDING_S = 2.0
"""Longest wait for the fold to show an append. After it the record is appended again: an append of unknown outcome
may have failed."""
PRUNE_S = 5.0
"""Time that changes stay in the outbox after fleet has folded them: one record prunes all changes of this time."""
RETRY_S = 1.0
"""Wait after an error, with jitter."""


class _Need(NamedTuple):
    """The need for a record about a partition of topic zones. The event is appended to `target` until the folds show
    that the need is met."""

    subject: Partition
    target: Partition
    is_met: Callable[[], bool]
    event: Callable[[], Event | None]


class Forwarder:
    """Forwards the changes of every partition of topic zones until `run` is cancelled. The counts include confirmed
    appends only.
    """

    def __init__(self, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random) -> None:
        self.forwards = 0
        self.forwarded_items = 0
        self.outbox_deliveries = 0
        self._busy = 0
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"forwarder/{replica.name}"
        self.internal_events = InternalEvents(replica, ranks, API)

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._forward(partition))
                tasks.create_task(self._deliver(partition))
                tasks.create_task(self._prune(partition))

    async def _forward(self, partition: Partition) -> None:
        def is_needed() -> bool:
            zone, mark = self._states.zones_at(partition), self._mark(partition)
            return mark >= zone.forwarded and zone.has_unforwarded_from(mark)

        while True:
            await self._replica.fold_waits.wait_for(is_needed, partition, FLEET_0)
            self._busy += 1
            try:
                await self._forward_from(partition, self._mark(partition))
            finally:
                self._busy -= 1

    async def _forward_from(self, partition: Partition, mark: int) -> None:
        loop = asyncio.get_running_loop()
        began_s, items, is_all = loop.time(), 0, True

        def moved() -> bool:
            return self._mark(partition) != mark

        def event() -> MembershipChanged | None:
            nonlocal items, is_all
            zone = self._states.zones_at(partition)
            found = forward(zone, partition.number, mark)
            if found is not None:
                items, is_all = len(found.names), not zone.has_unforwarded_from(found.to_offset)
            return found

        if not await self._append(_Need(partition, FLEET_0, moved, event)):
            return
        self.forwards += 1
        self.forwarded_items += items
        if is_all:  # otherwise the remaining changes are a full batch already
            await asyncio.sleep(min((loop.time() - began_s) * self._busy, WINDOW_MAX_S))

    async def _deliver(self, partition: Partition) -> None:
        def is_needed() -> bool:
            mark = self._states.zones_at(partition).fleet_mark
            return next_record(self._states.fleet, partition.number, mark) is not None

        while True:
            await self._replica.fold_waits.wait_for(is_needed, partition, FLEET_0)
            await self._deliver_from(partition, self._states.zones_at(partition).fleet_mark)

    async def _deliver_from(self, partition: Partition, mark: int) -> None:
        def moved() -> bool:
            return self._states.zones_at(partition).fleet_mark != mark

        def event() -> Event | None:
            return next_record(self._states.fleet, partition.number, mark)

        self.outbox_deliveries += await self._append(_Need(partition, partition, moved, event))

    async def _prune(self, partition: Partition) -> None:
        def is_possible() -> bool:
            mark = self._mark(partition)
            is_behind_us = mark <= self._replica.position(partition)  # if not, see drivers/stall_detector.py
            return is_behind_us and self._states.zones_at(partition).has_forwarded_before(mark)

        while True:
            await self._replica.fold_waits.wait_for(is_possible, partition, FLEET_0)
            await asyncio.sleep(PRUNE_S)
            await self._prune_to(partition, self._mark(partition))

    async def _prune_to(self, partition: Partition, mark: int) -> None:
        def pruned() -> bool:
            return self._states.zones_at(partition).forwarded >= mark

        def event() -> Event:
            return OutboxAcknowledged(internal_envelope(str(partition), self._actor, self._now_ms()), mark)

        if not pruned():
            await self._append(_Need(partition, partition, pruned, event))

    async def _append(self, need: _Need) -> bool:
        """Wait for our turn, append a record, and wait until this record or another replica's equal one is folded.
        Returns True if this replica appended the record, and it is folded.

        A partition that is halted on this replica is left to other replicas. A halted partition folds nothing, so this
        replica would never see that the need is met. It would append the same record, of up to half a megabyte, again
        every two seconds.
        """
        if self._replica.folded(need.target).halted:
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
            return False
        if await self.internal_events.wait_for_turn(str(need.subject), need.target, need.is_met):
            return False
        event = need.event()
        if event is None:
            return False
        event = replace(event, envelope=internal_envelope(event.envelope.subject, self._actor, self._now_ms()))
        if not await self.internal_events.append(need.target, event.envelope.subject, event):
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
            return False
        return await self._replica.fold_waits.wait_for(need.is_met, need.target, timeout_s=LANDING_S)

    def _mark(self, partition: Partition) -> int:
        return self._states.fleet.marks.get(partition.number, 0)
