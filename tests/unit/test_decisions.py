"""The decisions topic says what a fold of the log afresh says: whatever path folded, whoever crashed, whoever wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.roles import ActorContext, actors_of, decision_writer_of, replica_of
from deploy.topics import TOPICS
from drivers.decisions.owed import KEPT_RECORDS, Owed, Room
from drivers.decisions.writer import DecisionWriter
from eventstore.avro.codec import decode, encode
from eventstore.errors import AppendUnknown
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, DECISIONS, ZONES, Headers, Partition, Record
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.decisions.decided import MAX_TEXT
from projections.zones.fold import ZonesFold
from schemas.events import (
    DpuRegistered,
    Event,
    IndexClaimed,
    LifecycleRequested,
    NodesJoined,
    NodesLeft,
    PolicySet,
)
from tests.simulation.durable import Disk, DiskStore
from tests.support.decisions import Heard, items_of, rendered, until_all_are_written
from tests.support.driven import START_MS, LateLog, Order
from tests.support.memory_log import Contents
from tests.support.toy_log import LOG_ID
from tests.support.virtual_loop import run_virtual
from tests.unit.test_runs import join, log_of

ZONES_0 = Partition(ZONES, 0)


def heard_of(records: Sequence[Record], *, together: bool) -> Heard:
    heard = Heard()
    folded = FoldedPartition(ZONES_0, {1: ZonesFold()}, LOG_ID, heard)
    start = 0
    while start < len(records):
        if together:
            start, _ = folded.fold_next(records, start, len(records))
        else:
            folded.fold(records[start])
            start += 1
    return heard


@settings(max_examples=25)
@given(st.lists(st.integers(0, 400), min_size=20, max_size=120), st.data())
def test_a_run_of_joins_is_decided_as_one_by_one(numbers: list[int], data: st.DataObject) -> None:
    events: list[Event | bytes] = [join(number) for number in numbers]
    events.insert(
        data.draw(st.integers(0, len(events))), NodesLeft(join(9).envelope, "z0", ["node-3"], [], [], False, b"")
    )
    records = log_of(events)
    assert heard_of(records, together=True).records() == heard_of(records, together=False).records()


def test_runs_are_heard_as_runs_and_say_who_joined_where() -> None:
    heard = heard_of(log_of([join(number) for number in range(60)]), together=True)
    assert heard.runs == 1
    (item,) = items_of(rendered(heard.decisions[4]))
    assert item == ("node_joined", "node-4", {"zone": "z1"})


def test_what_would_not_fit_a_record_is_counted() -> None:
    names = [f"{number:04d}-{'n' * 240}" for number in range(1_000)]
    said = join(1).envelope
    first = NodesJoined(said, "z0", names, [], [], b"", b"", [], [])
    decided_record = heard_of(log_of([first]), together=False).decisions[0]
    nodes = {
        f"{name}{i}": node for name, node in zip(names, decided_record.change.new.rows(), strict=True) for i in range(4)
    }
    many = decided_record._replace(change=decided_record.change._replace(new=None, nodes=nodes))
    found = [*items_of(rendered(many))]
    assert found[-1].kind == "not_listed"
    assert len(found) - 1 + int(found[-1].detail["items"]) == 4_000
    assert len(encode(rendered(many))) < MAX_TEXT * 1.1


class World:
    """Processes of the plane over one log in memory, each with a disk; some appends of decisions are lost."""

    def __init__(self, seed: int) -> None:
        self.contents = Contents(2)
        self.rng = Random(seed)
        self.disks: dict[str, Disk] = {}
        self.lives: dict[str, tuple[Replica, DiskStore, list[asyncio.Task[None]]]] = {}
        self.names: list[str] = []
        self.lossy = True

    def now_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000)

    async def start(self, name: str) -> Replica:
        log = LossyLog(self)
        store = DiskStore(self.disks.setdefault(name, Disk()), self.rng, lambda partition, head: None)
        replica = replica_of(["api"], log, store, name, now_ms=self.now_ms, rng=Random(name))
        self.names = [*dict.fromkeys([*self.names, name])]
        ranks = Order(name, self.names, set())
        context = ActorContext(replica, ranks, unreachable, self.now_ms, lambda: Random(name))
        writer = decision_writer_of(context)
        assert writer is not None
        runs = [replica.run(), writer.run(), *(actor.run() for actor in actors_of(["api"], context).values())]
        self.lives[name] = (replica, store, [asyncio.create_task(run) for run in runs])
        await replica.ready()
        return replica

    async def kill(self, name: str) -> None:
        _, store, tasks = self.lives.pop(name)
        store.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def say(self, topic: str, key: str, event: Any) -> None:
        log = LossyLog(self)
        await log.append(TOPICS.partition_for(topic, key, 2), key.encode(), encode(event))

    def command(self, subject: str, actor: str = "?test") -> Any:
        return envelope(subject, actor, uuid7(self.now_ms(), self.rng))

    async def agree(self) -> dict[str, set[bytes]]:
        return await until_all_are_written(LossyLog(self), timeout_s=300, every_s=10)


class LossyLog(LateLog):
    def __init__(self, world: World) -> None:
        super().__init__(world.contents, world.now_ms)
        self._world = world

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        await asyncio.sleep(self._world.rng.uniform(0, 0.02))
        if partition.topic == DECISIONS and self._world.lossy and self._world.rng.random() < 0.2:
            raise AppendUnknown("lost")
        await super().append(partition, key, value, timeout_s=timeout_s, headers=headers)


def unreachable(address: str) -> Any:
    raise AssertionError(f"nobody provisions {address}")


async def a_day(world: World, day: int) -> None:
    """Something of everything that is decided."""
    for number in range(25):
        name, zone = f"n{day}-{number}", f"z{number % 3}"
        address = (10 << 24 | day << 16 | number + 1).to_bytes(4, "big")
        await world.say(ZONES, zone, NodesJoined(world.command(zone), zone, [name], [], [], address, b"", [], []))
        claim = IndexClaimed(world.command("d"), "d", "c", name, "", 0, "", -1)
        await world.say(CLIQUES, "d", claim)
        await asyncio.sleep(world.rng.uniform(0, 0.1))
    await world.say(ZONES, "z0", DpuRegistered(world.command("d"), "z0", f"dpu{day}", "", "", "simulated:x"))
    await world.say(ZONES, "z0", LifecycleRequested(world.command("d"), "z0", f"dpu{day}", "provision", "image"))
    await world.say(ZONES, "z0", NodesLeft(world.command("z0"), "z0", [f"n{day}-0", "nobody"], [], [], False, b""))
    drop = PolicySet(world.command("p"), f"p{day}", 1, "drop", "any", [], {"side": "none"}, {})
    await world.say("fleet", "p", drop)


@pytest.mark.parametrize("seed", range(4))
def test_the_topic_is_a_refold_of_the_log_through_crashes_and_two_writers(seed: int) -> None:
    async def scenario() -> None:
        world = World(seed)
        await world.start("one")
        await a_day(world, 1)
        await world.start("two")
        for day in range(2, 6):
            await a_day(world, day)
            victim = world.rng.choice(["one", "two"])
            await world.kill(victim)
            await a_day(world, day + 10)
            await world.start(victim)
        found = await world.agree()
        kinds = {item.kind for values in found.values() for item in items_of(decode(min(values)))}  # type: ignore[arg-type]
        wanted = {"node_joined", "node_left", "index_assigned", "index_waiting", "dpu_phase_changed", "step_opened"}
        assert kinds >= wanted | {"member_joined", "member_left", "policy_set", "unchanged", "forwarded"}
        for name in [*world.lives]:
            await world.kill(name)

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_one_writer_that_is_killed_again_and_again_loses_nothing(seed: int) -> None:
    async def scenario() -> None:
        world = World(seed)
        for day in range(1, 5):
            await world.start("one")
            await a_day(world, day)
            await asyncio.sleep(world.rng.uniform(0, 1.5))
            await world.kill("one")
        await world.start("one")
        await world.agree()
        await world.kill("one")

    run_virtual(scenario())


def test_what_the_topic_could_not_keep_up_with_is_folded_again() -> None:
    async def scenario() -> None:
        world = World(1)
        world.lossy = False
        count = KEPT_RECORDS + 2_000
        replica = await world.start("one")
        records = [
            encode(NodesJoined(world.command("z"), "z", [f"n{number}"], [], [], b"", b"", [], []))
            for number in range(count)
        ]
        for value in records:
            world.contents.add(TOPICS.partition_for(ZONES, "z", 2), world.now_ms(), b"z", value)
        await replica.wait_for_position(TOPICS.partition_for(ZONES, "z", 2), count, timeout_s=60)
        owed = replica.listeners[TOPICS.partition_for(ZONES, "z", 2)]
        assert isinstance(owed, Owed) and owed.gap is not None
        await world.agree()
        assert owed.gap is None
        await world.kill("one")

    run_virtual(scenario())


def test_decisions_of_a_thousand_commands_a_second_are_written_as_fast_as_they_are_made() -> None:
    async def scenario() -> None:
        world, place = World(1), TOPICS.partition_for(ZONES, "z", 2)
        world.lossy = False
        replica = await world.start("one")
        owed = replica.listeners[place]
        assert isinstance(owed, Owed)
        for number in range(5_000):
            event = NodesJoined(world.command("z"), "z", [f"n{number}"], [], [], b"", b"", [], [])
            world.contents.add(place, world.now_ms(), b"z", encode(event))
            await asyncio.sleep(0.001)
        assert replica.position(place) - owed.owes_from(replica.position(place)) < 500
        await world.agree()
        await world.kill("one")

    run_virtual(scenario())


class Behind:
    """Ranks of a replica that comes after many others."""

    def __init__(self, behind: int) -> None:
        self.behind = behind

    def rank(self, subject: str, role: str) -> int:
        return self.behind

    def is_alive(self, replica: str) -> bool:
        return True


async def replica_with(world: World, count: int, *, age_ms: int = 0) -> tuple[Replica, Partition, Owed]:
    """A replica that has folded so many joins of so long ago, whose decisions are all missed; it writes nothing."""
    replica = replica_of(
        ["api"], LossyLog(world), DigestStore(), "one", now_ms=world.now_ms, rng=Random(1), decisions=False
    )
    world.lives["one"] = replica, DiskStore(Disk(), world.rng, nobody_looks), [asyncio.create_task(replica.run())]
    await replica.ready()
    partition, owed = TOPICS.partition_for(ZONES, "z", 2), Owed(Room())
    for number in range(count):
        event = NodesJoined(world.command("z"), "z", [f"n{number}"], [], [], b"", b"", [], [])
        world.contents.add(partition, world.now_ms() - age_ms, b"z", encode(event))
    await replica.wait_for_position(partition, count + 1, timeout_s=60)
    owed.restored(0, count + 1)
    return replica, partition, owed


def nobody_looks(partition: Partition, head: Any) -> None:
    """Saves of these worlds are not looked at."""


def test_what_is_made_again_goes_on_though_others_have_written_all_that_was_kept() -> None:
    async def scenario() -> None:
        world, count = World(1), KEPT_RECORDS // 10 * 3
        replica, partition, owed = await replica_with(world, count)
        writer = DecisionWriter(replica, {partition: owed}, Behind(1_000), now_ms=world.now_ms, rng=Random(1))
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(5)
        assert not owed.has_room
        for offset in range(1, count + 1):
            world.contents.add(Partition(DECISIONS, partition.number), world.now_ms(), cause_at(partition, offset), b"")
        await asyncio.sleep(60)
        assert owed.gap is None and not owed.waits() and not writer.written
        running.cancel()
        await world.kill("one")

    run_virtual(scenario())


@pytest.mark.parametrize("age_days, written", [(0, 40), (31, 0)])
def test_written_are_those_that_landed(age_days: int, written: int) -> None:
    async def scenario() -> None:
        world = World(1)
        world.lossy = False
        replica, partition, owed = await replica_with(world, 40, age_ms=age_days * 86_400_000)
        writer = DecisionWriter(replica, {partition: owed}, Behind(0), now_ms=world.now_ms, rng=Random(1))
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(60)
        assert owed.gap is None and not owed.waits()
        assert writer.written == written == world.contents.end(Partition(DECISIONS, partition.number))
        running.cancel()
        await world.kill("one")

    run_virtual(scenario())


def cause_at(partition: Partition, offset: int) -> bytes:
    return f"{partition.topic}/{partition.number}/{offset}".encode()
