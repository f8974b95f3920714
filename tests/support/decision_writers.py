"""Processes of the plane over one log in memory on virtual time, some of which write decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from deploy.composition.roles import ActorContext, actors_of, replica_of
from deploy.composition.topics import TOPICS
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.decisions.written import cause_of
from eventstore.avro.codec import encode
from eventstore.errors import AppendUnknown
from eventstore.ids import envelope, uuid7
from eventstore.log import DECISIONS, Partition
from eventstore.replicas.replica import Replica
from schemas.events import NodesJoined
from tests.simulation.durable import Disk, DiskStore
from tests.support.decisions import until_all_are_written
from tests.support.driven import Order
from tests.support.memory_log import START_MS, Contents, Failures, MemoryLog

READ_LATENCY_S = 0.001


class AppendFailures(Failures):
    """Appends of decisions take a drawn time, and fail at times or as they are told to."""

    def __init__(self, rng: Random, loss: float) -> None:
        super().__init__(read_latency_s=READ_LATENCY_S)
        self.hangs = False
        self._rng = rng
        self._loss = loss

    def before_append(self) -> tuple[float, Exception | None]:
        latency_s = 3_600.0 if self.hangs else self._rng.uniform(0, 0.02)
        is_lost = self._rng.random() < self._loss
        return latency_s, self.append_error or (AppendUnknown("lost") if is_lost else None)


class Life(NamedTuple):
    """One life of a process; the writer and its task if it writes decisions."""

    replica: Replica
    store: DiskStore
    tasks: list[asyncio.Task[None]]
    writer: DecisionWriter | None


class World:
    """Processes with a disk each. Ranks go by the order of their first start among those that are alive."""

    def __init__(self, seed: int, *, loss: float = 0.0) -> None:
        self.contents = Contents(2)
        self.rng = Random(seed)
        self.log = MemoryLog(self.contents, self.now_ms)
        self.log.failures.read_latency_s = READ_LATENCY_S
        self.failures = self.log.failures_of[DECISIONS] = AppendFailures(self.rng, loss)
        self.disks: dict[str, Disk] = {}
        self.lives: dict[str, Life] = {}
        self.names: list[str] = []
        self.gone: set[str] = set()

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000)

    async def start(self, name: str, *roles: str, is_ready: bool = True, acts: bool = True) -> Life:
        """A process, of role `decisions` unless others are given; one that does not act only folds."""
        roles = roles or ("decisions",)
        store = DiskStore(self.disks.setdefault(name, Disk()), self.rng, lambda partition, head: None)
        buffer = DecisionBuffer() if "decisions" in roles else None
        now_ms, rng = self.now_ms, Random(name)
        replica = replica_of(roles, self.log, store, name, now_ms=now_ms, rng=rng, decisions=buffer)
        self.names = [*dict.fromkeys([*self.names, *([name] if buffer else [])])]
        self.gone.discard(name)
        ranks = Order(name, self.names, self.gone)
        actors = actors_of(roles, ActorContext(replica, ranks, unreachable, now_ms, lambda: rng))
        runs = [replica.run(), *(actor.run() for actor in actors.values() if acts)]
        writer = DecisionWriter(replica, buffer, ranks, now_ms=now_ms, rng=rng) if buffer else None
        if writer is not None:
            runs.append(writer.run())
        life = self.lives[name] = Life(replica, store, [asyncio.create_task(run) for run in runs], writer)
        if is_ready:
            await replica.ready()
        return life

    async def kill(self, name: str) -> None:
        life = self.lives.pop(name)
        self.gone.add(name)
        life.store.cut()
        for task in life.tasks:
            task.cancel()
        await asyncio.gather(*life.tasks, return_exceptions=True)

    async def end(self) -> None:
        for name in [*self.lives]:
            await self.kill(name)

    async def say(self, topic: str, key: str, event: Any) -> None:
        await self.log.append(TOPICS.partition_for(topic, key, 2), key.encode(), encode(event))

    def joined(self, count: int, zone: str = "z", *, age_ms: int = 0) -> None:
        """So many joins of so long ago stand in the log now."""
        for _ in range(count):
            name = f"n{self.rng.getrandbits(64)}"
            event = NodesJoined(self.command(zone), zone, [name], [], [], b"", b"", [], [])
            place = TOPICS.partition_for("zones", zone, 2)
            self.contents.add(place, self.now_ms() - age_ms, zone.encode(), encode(event))

    def command(self, subject: str, actor: str = "?test") -> Any:
        return envelope(subject, actor, uuid7(self.now_ms(), self.rng))

    def tried(self) -> list[bytes]:
        """The keys of all appends of decisions, whatever became of them."""
        return [attempt.key for attempt in self.log.attempts if attempt.partition.topic == DECISIONS]

    async def agree(self) -> dict[str, set[bytes]]:
        return await until_all_are_written(self.log, timeout_s=300, every_s=10)

    def causes(self, partition: Partition) -> list[int]:
        """The offsets of this partition whose decisions stand in the topic, sorted."""
        records = self.contents.records.get(Partition(DECISIONS, partition.number), ())
        found = [cause_of(record.key) for record in records]
        return sorted(cause[1] for cause in found if cause is not None and cause[0] == partition)

    def write_elsewhere(self, partition: Partition, offsets: Sequence[int]) -> None:
        """Another writer's decisions about these records."""
        for offset in offsets:
            self.contents.add(Partition(DECISIONS, partition.number), self.now_ms(), cause_at(partition, offset), b"")


def cause_at(partition: Partition, offset: int) -> bytes:
    return f"{partition.topic}/{partition.number}/{offset}".encode()


def unreachable(address: str) -> Any:
    raise AssertionError(f"nobody provisions {address}")
