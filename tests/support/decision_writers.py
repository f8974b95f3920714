"""Processes of the plane, some of which write decisions, and failures of their appends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

from deploy.composition.topics import TOPICS
from drivers.decisions.written import cause_of
from eventstore.avro.codec import encode
from eventstore.errors import AppendUnknown
from eventstore.log import DECISIONS, Partition
from schemas.events import NodesJoined
from tests.support.decisions import wait_for_all_decisions
from tests.support.memory_log import Failures
from tests.support.memory_plane import Plane, running

PARTITIONS = 2
READ_LATENCY_S = 0.001


class AppendFailures(Failures):
    """Failures of appends of decisions: random latencies and losses, an error, or appends that hang."""

    def __init__(self, rng: Random, loss: float) -> None:
        super().__init__(read_latency_s=READ_LATENCY_S)
        self.hangs = False
        self._rng = rng
        self._loss = loss

    def before_append(self) -> tuple[float, Exception | None]:
        latency_s = 3_600.0 if self.hangs else self._rng.uniform(0, 0.02)
        is_lost = self._rng.random() < self._loss
        return latency_s, self.append_error or (AppendUnknown("lost") if is_lost else None)


class DecidingPlane(Plane):
    """A plane with processes that write decisions."""

    def __init__(self, tasks: asyncio.TaskGroup, seed: int, loss: float) -> None:
        super().__init__(tasks, PARTITIONS, seed)
        self.log.failures.read_latency_s = READ_LATENCY_S
        self.failures = self.log.failures_of[DECISIONS] = AppendFailures(self.draws, loss)

    async def say(self, topic: str, key: str, event: Any) -> None:
        await self.log.append(TOPICS.partition_for(topic, key, PARTITIONS), key.encode(), encode(event))

    def joined(self, count: int, zone: str = "z", *, age_ms: int = 0) -> None:
        """Add `count` joins of this age to the log."""
        for _ in range(count):
            name = f"n{self.draws.getrandbits(64)}"
            event = NodesJoined(self.command(zone), zone, [name], [], [], b"", b"", [], [])
            place = TOPICS.partition_for("zones", zone, PARTITIONS)
            self.contents.add(place, self.now_ms() - age_ms, zone.encode(), encode(event))

    def tried(self) -> list[bytes]:
        """The keys of all attempted appends of decisions, with any outcome."""
        return [attempt.key for attempt in self.log.attempts if attempt.partition.topic == DECISIONS]

    async def agree(self) -> dict[str, set[bytes]]:
        return await wait_for_all_decisions(self.log, timeout_s=300, every_s=10)

    def causes(self, partition: Partition) -> list[int]:
        """The offsets of this partition whose decisions are in the topic, sorted."""
        records = self.contents.records.get(Partition(DECISIONS, partition.number), ())
        found = [cause_of(record.key) for record in records]
        return sorted(cause[1] for cause in found if cause is not None and cause[0] == partition)

    def write_elsewhere(self, partition: Partition, offsets: Sequence[int]) -> None:
        """Add decisions of another writer about these records to the topic."""
        for offset in offsets:
            self.contents.add(Partition(DECISIONS, partition.number), self.now_ms(), cause_at(partition, offset), b"")


def cause_at(partition: Partition, offset: int) -> bytes:
    return f"{partition.topic}/{partition.number}/{offset}".encode()


def deciding_plane(seed: int, *, loss: float = 0.0) -> AbstractAsyncContextManager[DecidingPlane]:
    """A plane without processes, where this share of the appends of decisions is lost."""
    return running(lambda tasks: DecidingPlane(tasks, seed, loss))
