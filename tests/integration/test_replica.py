"""Replicas over real engines: one log yields one state through crashes, faulty appends and several replicas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from eventstore.avro.codec import decode
from eventstore.errors import TransientError
from eventstore.log import FLEET, FLEET_0, ZONES, EventLog, Partition
from eventstore.recovery.replay import replay
from eventstore.replica_limits import ReplicaLimits
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.rocks_store import RocksStore
from schemas.events import PolicyDeleted, PolicySet
from tests.contract.engine import read_all
from tests.support.embedded import EmbeddedUnderTest
from tests.support.eventually import until
from tests.support.faulty_log import FaultyLog, LogFaults
from tests.support.replicas import running, toy_replica
from tests.support.toy_fold import ToyFold
from tests.support.toy_records import Issuer

FOLDS = [ToyFold(FLEET), ToyFold(ZONES)]
FAULTS = LogFaults(duplicate=0.15, lost_answer=0.1, late=0.1, never=0.1, delay_max_s=0.3, backward_timestamps=0.2)
QUICK = ReplicaLimits(save_every_s=0.05, save_rows=20, save_rows_behind=50)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EmbeddedUnderTest]:
    engine = EmbeddedUnderTest(tmp_path / "log")
    yield engine
    await engine.aclose()


async def until_known(replica: Replica, command: PolicySet | PolicyDeleted, partition: Partition) -> Answer:
    """Send a command under its id until its outcome is known."""
    while True:
        with suppress(TransientError):
            return await replica.submit(partition, b"key", command, timeout_s=0.5)


async def wait_until_equal(log: EventLog, replicas: list[Replica]) -> None:
    """Wait until all replicas have one state, and check that a replay yields it too."""
    for partition in (*log.partitions(FLEET), *log.partitions(ZONES)):
        end = await log.end(partition)
        for replica in replicas:
            await replica.wait_for_position(partition, end, timeout_s=60)
    await until(lambda: all(map(is_saved, replicas)))
    statuses = [replica.partitions_status() for replica in replicas]
    afresh = await replay(log, FOLDS)
    for several in zip(*statuses, strict=True):
        partition = several[0].partition
        replayed = afresh.partitions[partition]
        assert {status.position for status in several} == {replayed.position}
        assert {status.running for status in several} == {replayed.running.hex()}
        assert {status.digest for status in several} == {afresh.digests[partition][replayed.position]}


def is_saved(replica: Replica) -> bool:
    """Whether the digests of a replica are those of its positions."""
    return all(status.saved_position == status.position for status in replica.partitions_status())


async def effects(log: EventLog, partition: Partition) -> list[str]:
    """The ids of all commands in the log, copies included."""
    return [decode(record.value).envelope.command_id for record in await read_all(log, partition)]


async def test_three_replicas_with_faulty_appends_have_one_state(engine: EmbeddedUnderTest) -> None:
    rng = random.Random(11)
    log = FaultyLog(await engine.open_embedded(), rng, FAULTS, seed=11)
    replicas = [toy_replica(log, name=f"r{i}", now_ms=engine.clock, limits=QUICK) for i in range(3)]
    partitions = [FLEET_0, *log.partitions(ZONES)]
    answers: dict[str, Answer] = {}

    async def client(number: int) -> None:
        issue = Issuer(number)
        for budget in range(25):
            engine.clock.ms += 40
            name, now = f"p{issue.rng.randrange(10)}", engine.clock.ms
            command = issue.set(name, budget, now_ms=now) if budget % 3 else issue.delete(name, now_ms=now)
            partition = partitions[number % len(partitions)]
            answers[command.envelope.command_id] = await until_known(issue.rng.choice(replicas), command, partition)

    async with running(*replicas):
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(client(number))
        await log.settle()
        await wait_until_equal(log, replicas)
        landed = [command_id for partition in partitions for command_id in await effects(log, partition)]
        assert answers.keys() <= set(landed)
        assert len(landed) > len(set(landed)), "the faults caused no copy of a record"
        for command_id, answer in answers.items():
            found = [known for replica in replicas for known in replica.outcomes(command_id)]
            assert found
            assert all(known == answer for known in found), command_id
        taken = sum(replicas[0].state(partition).total.effects for partition in partitions)
        assert taken == sum(answer.outcome.code == "done" for answer in answers.values())


@pytest.mark.parametrize("seed", range(3))
async def test_a_replica_that_is_killed_often_ends_in_the_state_of_a_replay(
    engine: EmbeddedUnderTest, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    log = await engine.open_embedded()
    survivor = toy_replica(log, name="survivor", now_ms=engine.clock)
    async with running(survivor):
        writing = asyncio.ensure_future(write(survivor, engine, Issuer(seed), count=2_000))
        while not writing.done():
            victim = toy_replica(log, name="victim", store=store(tmp_path), now_ms=engine.clock, limits=QUICK)
            run = asyncio.ensure_future(victim.run())
            await asyncio.sleep(rng.uniform(0, 0.25))
            run.cancel()
            await asyncio.wait([run])
            assert run.cancelled()
            victim._store.close()
        await writing
        last = toy_replica(log, name="last", store=store(tmp_path), now_ms=engine.clock, limits=QUICK)
        async with running(last):
            await wait_until_equal(log, [last])
        last._store.close()


def store(tmp_path: Path) -> RocksStore:
    return RocksStore(tmp_path / "state")


async def write(replica: Replica, engine: EmbeddedUnderTest, issue: Issuer, count: int) -> None:
    """Send commands from ten callers at a time, so that several share each sync."""
    for start in range(0, count, 10):
        engine.clock.ms += 200
        async with asyncio.TaskGroup() as tasks:
            for number in range(start, start + 10):
                name, now = f"p{issue.rng.randrange(200)}", engine.clock.ms
                command = issue.set(name, number, now_ms=now) if number % 4 else issue.delete(name, now_ms=now)
                tasks.create_task(replica.submit(FLEET_0, b"key", command, timeout_s=60))


async def test_a_restart_from_older_saved_state_ends_in_the_same_state(
    engine: EmbeddedUnderTest, tmp_path: Path
) -> None:
    log, issue = await engine.open_embedded(), Issuer()
    async with running(replica := toy_replica(log, store=store(tmp_path), now_ms=engine.clock, limits=QUICK)):
        await write(replica, engine, issue, 100)
        await asyncio.sleep(0.2)
        await replica._store.checkpoint()
        await write(replica, engine, issue, 100)
    replica._store.close()
    [checkpoint] = (tmp_path / "state" / "checkpoints").iterdir()
    checkpoint.rename(tmp_path / "older")
    (tmp_path / "older").rename(tmp_path / "state" / "current.old")
    (tmp_path / "state" / "current").rename(tmp_path / "newer")
    (tmp_path / "state" / "current.old").rename(tmp_path / "state" / "current")
    async with running(older := toy_replica(log, store=store(tmp_path), now_ms=engine.clock, limits=QUICK)):
        repeat = issue.set("again", now_ms=engine.clock.ms)
        told = await older.submit(FLEET_0, b"key", repeat, timeout_s=60)
        assert older.outcomes(repeat.envelope.command_id) == [told]
        await wait_until_equal(log, [older])
    older._store.close()


async def test_a_replica_keeps_running_after_its_log_is_closed(engine: EmbeddedUnderTest) -> None:
    log = await engine.open_embedded()
    async with running(replica := toy_replica(log, now_ms=engine.clock)):
        await log.close()
        with pytest.raises(TransientError):
            await replica.submit(FLEET_0, b"", Issuer().set("a", now_ms=engine.clock.ms), timeout_s=0.2)
        await asyncio.sleep(0.2)
        assert replica.position(FLEET_0) == 1
