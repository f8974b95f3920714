"""Processes of the plane over one in-memory log, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any, NamedTuple, TypeVar

from deploy.composition.host_connections import HostConnections
from deploy.composition.roles import ActorContext, actors_of, replica_of
from deploy.composition.topics import TOPICS
from drivers.backends.bmc import Connect
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.provisioning.attempts import Executor
from drivers.provisioning.device import DeviceExecutor
from eventstore.avro.codec import decode
from eventstore.folding.fold import Fold
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition
from eventstore.replicas.replica import Answer, Replica
from projections.fleet.fold import FleetFold
from projections.fleet.state import FleetState
from projections.fold_states import FoldStates
from projections.zones.dpus.phases import CLUSTER, DEVICE, NODE, RELEASE
from projections.zones.fold import ZonesFold, ZonesFold2
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas.events import DpuRegistered, Envelope, Event, LifecycleRequested, NodesJoined, NodesLeft
from tests.support.memory_disk import Disk, DiskStore
from tests.support.memory_log import START_MS, Contents, MemoryLog

P = TypeVar("P", bound="Plane")


def device_executors(connect: Connect) -> dict[str, Executor]:
    """Executors of which each does its steps on the device."""
    return {name: DeviceExecutor(connect) for name in (DEVICE, NODE, CLUSTER, RELEASE)}


class Order:
    """A replica order set by the test, the same for every subject. `first` are the replicas by rank, `gone` those that
    have no beacon. `roles` has the roles of processes that do not have all.
    """

    def __init__(self, name: str, first: list[str], gone: set[str], roles: Mapping[str, Collection[str]]) -> None:
        self._name = name
        self._first = first
        self._gone = gone
        self._roles = roles

    def rank(self, subject: str, role: str) -> int:
        alive = [name for name in self._first if name not in self._gone and role in self._roles.get(name, {role})]
        return alive.index(self._name) if self._name in alive else 0

    def is_alive(self, replica: str) -> bool:
        return replica not in self._gone

    def all_support(self, topic: str, version: int) -> bool:
        return True


class Life(NamedTuple):
    """One life of a process; the writer if it writes decisions."""

    replica: Replica
    store: DiskStore
    tasks: list[asyncio.Task[None]]
    writer: DecisionWriter | None = None


class Plane:
    """Processes by name, each with a disk that outlives it. `first` is their order of rank, `gone` are those without a
    beacon, and `ahead_ms` is the error of every clock. A process that fails ends the test.
    """

    def __init__(self, tasks: asyncio.TaskGroup, partition_count: int, seed: int = 1) -> None:
        self.contents = Contents(partition_count)
        self.log = MemoryLog(self.contents, self.now_ms)
        self.draws = Random(seed)
        self.ahead_ms = 0
        self.first: list[str] = []
        self.gone: set[str] = set()
        self.roles: dict[str, Collection[str]] = {}
        self.disks: dict[str, Disk] = {}
        self.lives: dict[str, Life] = {}
        self._tasks = tasks

    @property
    def replicas(self) -> dict[str, Replica]:
        return {name: life.replica for name, life in self.lives.items()}

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000) + self.ahead_ms

    def rng(self) -> Random:
        return Random(self.draws.getrandbits(64))

    def ranks(self, name: str) -> Order:
        return Order(name, self.first, self.gone, self.roles)

    async def add(self, name: str) -> Replica:
        """Start a process that only folds zones and fleet, and acts as the test spawns it. It has folded the log."""
        store = self._disk_of(name)
        folds: list[Fold[Any]] = [ZonesFold(), ZonesFold2(), FleetFold(self.log.partition_count)]
        replica = Replica(self.log, folds, store=store, name=name, now_ms=self.now_ms, rng=self.rng())
        self._begin(name, Life(replica, store, []))
        await replica.ready()
        return replica

    async def start(
        self, name: str, *roles: str, acts: bool = True, is_ready: bool = True, log: MemoryLog | None = None
    ) -> Life:
        """Start a process of these roles, as production composes it; one that does not act only folds. It reaches the
        log through `log` if one is given.
        """
        self.roles[name] = roles
        now_ms, ranks, store = self.now_ms, self.ranks(name), self._disk_of(name)
        buffer = DecisionBuffer() if "decisions" in roles else None
        replica = replica_of(roles, log or self.log, store, name, now_ms=now_ms, rng=self.rng(), decisions=buffer)
        writer = DecisionWriter(replica, buffer, ranks, now_ms=now_ms, rng=self.rng()) if buffer else None
        life = Life(replica, store, [], writer)
        self._begin(name, life)
        for actor in actors_of(
            roles, ActorContext(replica, ranks, _unreachable, HostConnections(), now_ms, self.rng)
        ).values():
            if acts:
                self.spawn(name, actor.run())
        if writer is not None:
            self.spawn(name, writer.run())
        if is_ready:
            await replica.ready()
        return life

    def _disk_of(self, name: str) -> DiskStore:
        return DiskStore(self.disks.setdefault(name, Disk()))

    def _begin(self, name: str, life: Life) -> None:
        self.lives[name] = life
        if name not in self.first:
            self.first.append(name)
        self.gone.discard(name)
        self.spawn(name, life.replica.run())

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends with the process of this name."""
        self.lives[name].tasks.append(self._tasks.create_task(work))

    def kill(self, name: str, *, beacon: bool = False) -> None:
        """Stop a process at its current await. Its beacon is removed too, unless it is to stay."""
        life = self.lives.pop(name)
        life.store.cut()
        for task in life.tasks:
            task.cancel()
        if not beacon:
            self.gone.add(name)

    def kill_all(self) -> None:
        for name in [*self.lives]:
            self.kill(name)

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

    def command(self, subject: str, actor: str = "?test") -> Envelope:
        return envelope(subject, actor, uuid7(self.now_ms(), self.draws))

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

    async def register(self, name: str, *, zone: str = "z1", serial: str = "", scheme: str = "simulated") -> None:
        event = DpuRegistered(self.command(name), zone, name, f"node-of-{name}", serial, f"{scheme}:{name}")
        assert (await self.submit(zone, event)).outcome.code == "done"

    async def request(self, name: str, request: str, image: str = "", *, zone: str = "z1") -> Answer:
        return await self.submit(zone, LifecycleRequested(self.command(name), zone, name, request, image))

    async def until(self, holds: Callable[[], bool], *, timeout_s: float = 120.0) -> float:
        """Wait until a condition holds; the wait in seconds, to 0.01 s, or to 0.05 s if it exceeded 10 s."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.01 if loop.time() < began_s + 10 else 0.05)
        return loop.time() - began_s


@asynccontextmanager
async def running(make: Callable[[asyncio.TaskGroup], P]) -> AsyncIterator[P]:
    """A plane that is made with this task group. The context stops everything on exit."""
    async with asyncio.TaskGroup() as tasks:
        made = make(tasks)
        try:
            yield made
        finally:
            made.kill_all()


def plane(partition_count: int = 2) -> AbstractAsyncContextManager[Plane]:
    """A plane without processes."""
    return running(lambda tasks: Plane(tasks, partition_count))


def _unreachable(address: str) -> Any:
    raise AssertionError(f"no process may provision {address}")
