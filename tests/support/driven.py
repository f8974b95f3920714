"""Replicas with drivers over one in-memory log, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode
from eventstore.folding.fold import Fold
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.store import DigestStore
from projections.fleet.fold import FleetFold
from projections.fleet.state import FleetState
from projections.fold_states import FoldStates
from projections.zones.fold import ZonesFold
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas.events import DpuRegistered, Envelope, Event, LifecycleRequested, NodesJoined, NodesLeft
from tests.support.memory_log import START_MS, Contents, MemoryLog


class Order:
    """A replica order set by the test: the ranks, and which replicas have a beacon."""

    def __init__(self, name: str, first: list[str], gone: Collection[str]) -> None:
        self._name = name
        self._first = first
        self._gone = gone

    def rank(self, subject: str, role: str) -> int:
        alive = [name for name in self._first if name not in self._gone]
        return alive.index(self._name) if self._name in alive else 0

    def is_alive(self, replica: str) -> bool:
        return replica not in self._gone


class Plane:
    """Replicas by name. `first` is their order of rank, `gone` the replicas without a beacon, `ahead_ms` the error of
    the clock of all.
    """

    def __init__(self, tasks: asyncio.TaskGroup, partition_count: int) -> None:
        self.log = MemoryLog(Contents(partition_count), self.now_ms)
        self.replicas: dict[str, Replica] = {}
        self.ahead_ms = 0
        self.first: list[str] = []
        self.gone: set[str] = set()
        self.lives: dict[str, list[asyncio.Task[None]]] = {}
        self._tasks = tasks
        self._rng = Random(1)

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000) + self.ahead_ms

    def rng(self) -> Random:
        return Random(self._rng.getrandbits(64))

    def ranks(self, name: str) -> Order:
        return Order(name, self.first, self.gone)

    async def add(self, name: str) -> Replica:
        """Add a replica of zones and fleet that has folded the log to its end."""
        folds: list[Fold[Any]] = [ZonesFold(), FleetFold(self.log.partition_count)]
        replica = Replica(self.log, folds, store=DigestStore(), name=name, now_ms=self.now_ms, rng=self.rng())
        self.replicas[name] = replica
        if name not in self.first:
            self.first.append(name)
        self.gone.discard(name)
        self.spawn(name, replica.run())
        await replica.ready()
        return replica

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends with the replica of this name."""
        self.lives.setdefault(name, []).append(self._tasks.create_task(work))

    def kill(self, name: str, *, beacon: bool = False) -> None:
        """Stop a replica and its drivers at their current await. Its beacon is removed too, unless it is to stay."""
        for task in self.lives.pop(name, ()):
            task.cancel()
        del self.replicas[name]
        if not beacon:
            self.gone.add(name)

    def partition(self, zone: str) -> Partition:
        return TOPICS.partition_for(ZONES, zone, self.log.partition_count)

    def zone(self, zone: str) -> ZonesState:
        return FoldStates(self._any()).zone(zone)

    def fleet(self) -> FleetState:
        return FoldStates(self._any()).fleet

    def dpu(self, name: str, zone: str = "z1") -> Dpu:
        return self.zone(zone).dpus.rows[name]

    def _any(self) -> Replica:
        return next(iter(self.replicas.values()))

    def command(self, subject: str) -> Envelope:
        return envelope(subject, "?test", uuid7(self.now_ms(), self._rng))

    async def submit(self, zone: str, event: Event) -> Answer:
        return await self._any().submit(self.partition(zone), zone.encode(), event, timeout_s=5.0)

    def count(self, partition: Partition, kind: type[Event]) -> int:
        """The number of records of a kind in the log."""
        return sum(isinstance(decode(r.value), kind) for r in self.log.contents.records.get(partition, ()))

    async def join(self, zone: str, *names: str, created_ms: int = 0) -> Answer:
        incarnation = ([created_ms], ["u"]) if created_ms else ([], [])
        return await self.submit(
            zone, NodesJoined(self.command(zone), zone, list(names), *incarnation, b"", b"", [], [])
        )

    async def leave(self, zone: str, *names: str) -> Answer:
        return await self.submit(zone, NodesLeft(self.command(zone), zone, list(names), [], [], False, b""))

    async def register(self, name: str, *, zone: str = "z1", serial: str = "") -> None:
        event = DpuRegistered(self.command(name), zone, name, f"node-of-{name}", serial, f"simulated:{name}")
        assert (await self.submit(zone, event)).outcome.code == "done"

    async def request(self, name: str, request: str, image: str = "", *, zone: str = "z1") -> Answer:
        return await self.submit(zone, LifecycleRequested(self.command(name), zone, name, request, image))

    async def until(self, holds: Callable[[], bool], *, timeout_s: float = 60.0) -> float:
        """Wait until a condition holds; the wait in seconds, to 0.01 s, or to 0.05 s if it exceeded 10 s."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.01 if loop.time() < began_s + 10 else 0.05)
        return loop.time() - began_s


@asynccontextmanager
async def plane(partition_count: int = 2) -> AsyncIterator[Plane]:
    """A plane without replicas; the context stops everything on exit."""
    async with asyncio.TaskGroup() as tasks:
        made = Plane(tasks, partition_count)
        try:
            yield made
        finally:
            for life in made.lives.values():
                for task in life:
                    task.cancel()
