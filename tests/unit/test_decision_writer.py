"""The writer of decisions where something goes wrong: appends lost, cancelled or refused, a topic that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from deploy.topics import TOPICS
from drivers.decisions.kept import Kept
from drivers.decisions.missed import STEP_RECORDS, Earlier, nothing_earlier
from drivers.decisions.owed import KEPT_RECORDS, Gap, Owed, Room
from drivers.decisions.writer import AT_ONCE, OVERLAP, SLICE_S, DecisionWriter, cause_of, rest_s
from eventstore.avro.codec import encode
from eventstore.errors import AppendUnknown, FatalError, LogUnavailable
from eventstore.log import DECISIONS, ZONES, Batch, Headers, Partition
from eventstore.replicas.replica import Replica
from eventstore.state_store.rocks_store import RocksStore
from eventstore.state_store.saver import save
from schemas.events import FoldVersionUpgraded, NodesJoined
from tests.support.virtual_loop import VirtualLoop, run_virtual
from tests.unit.test_decisions import Behind, LossyLog, World, cause_at, replica_with
from tests.unit.test_owed import offsets, told

ZONES_0 = Partition(ZONES, 0)


class FailingLog(LossyLog):
    """Appends of decisions fail as they are told to; where the topic ends is not said for some times."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.failure: Exception | None = None
        self.hangs = False
        self.tried = 0
        self.outages = 0
        self.reads_fail = 0

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        if self.reads_fail and DECISIONS not in {partition.topic for partition in positions}:
            self.reads_fail -= 1
            raise LogUnavailable("the log is away")
        async for batch in super().read(positions):
            yield batch

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        if partition.topic == DECISIONS:
            self.tried += 1
            if self.hangs:
                await asyncio.sleep(3_600)
            if self.failure is not None:
                raise self.failure
        await super().append(partition, key, value, timeout_s=timeout_s, headers=headers)

    async def end(self, partition: Partition) -> int:
        if partition.topic == DECISIONS and self.outages:
            self.outages -= 1
            raise LogUnavailable("the topic is away")
        return await super().end(partition)


class Scene:
    """A replica that writes nothing itself, and what it owes; writers come and go."""

    def __init__(self, world: World, replica: Replica, partition: Partition, owed: Owed) -> None:
        self.world, self.replica, self.partition, self.owed = world, replica, partition, owed
        self.log = FailingLog(world)
        replica._log = self.log
        self.topic = Partition(DECISIONS, partition.number)

    def writer(self, rank: int = 0, earlier: Earlier = nothing_earlier) -> DecisionWriter:
        owed = {self.partition: self.owed}
        return DecisionWriter(
            self.replica, owed, Behind(rank), now_ms=self.world.now_ms, rng=Random(1), earlier=earlier
        )

    def written(self) -> list[int]:
        """The offsets whose decisions stand in the topic."""
        causes = [cause_of(record.key) for record in self.world.contents.records.get(self.topic, ())]
        return sorted(cause[1] for cause in causes if cause is not None and cause[0] == self.partition)


@asynccontextmanager
async def scene(count: int, *, age_ms: int = 0) -> AsyncIterator[Scene]:
    world = World(1)
    world.lossy = False
    yield Scene(world, *await replica_with(world, count, age_ms=age_ms))
    await world.kill("one")


@asynccontextmanager
async def running(writer: DecisionWriter) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(writer.run())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError, ExceptionGroup):
        await task


def test_what_was_on_its_way_when_a_writer_was_stopped_is_written_by_the_next() -> None:
    async def scenario() -> None:
        async with scene(20) as made:
            made.log.hangs = True
            async with running(made.writer()):
                await asyncio.sleep(10)
                assert made.log.tried
            assert made.owed.owes_from(21) <= 1
            made.log.hangs = False
            async with running(made.writer()):
                await asyncio.sleep(30)
            assert made.written() == [*range(1, 21)]
            assert made.owed.owes_from(21) == 21

    run_virtual(scenario())


@asynccontextmanager
async def two_owing(few: int, many: int) -> AsyncIterator[tuple[Scene, Behind, list[Owed]]]:
    """Two partitions that owe many decisions and few, made again, and the rank of their writer, who has begun none."""
    async with scene(many) as made:
        other, owing_few = Partition(ZONES, 1 - made.partition.number), Owed(Room())
        zone = next(zone for zone in map(str, range(10)) if TOPICS.partition_for(ZONES, zone, 2) == other)
        for number in range(few):
            event = NodesJoined(made.world.command(zone), zone, [f"n{number}"], [], [], b"", b"", [], [])
            made.world.contents.add(other, made.world.now_ms(), zone.encode(), encode(event))
        await made.replica.wait_for_position(other, few + 1, timeout_s=60)
        owing_few.restored(0, few + 1)
        rank, owed = Behind(1_000), {made.partition: made.owed, other: owing_few}
        writer = DecisionWriter(made.replica, owed, rank, now_ms=made.world.now_ms, rng=Random(1))
        async with running(writer):
            await asyncio.sleep(60)
            assert [each.gap for each in owed.values()] == [None, None]
            yield made, rank, [*owed.values()]


@pytest.mark.parametrize(("many", "under_way"), [(20, 30), (2 * AT_ONCE, AT_ONCE)])
def test_what_all_partitions_owe_is_under_way_together_and_bounded(many: int, under_way: int) -> None:
    async def scenario() -> None:
        async with two_owing(10, many) as (made, rank, _):
            made.log.hangs, rank.behind = True, 0
            await asyncio.sleep(10)
            assert made.log.tried == under_way

    run_virtual(scenario())


def test_what_is_under_way_together_is_bounded_by_its_size_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.decisions.writer.TAKEN_BYTES", 1)

    async def scenario() -> None:
        async with two_owing(10, 20) as (made, rank, _):
            made.log.hangs, rank.behind = True, 0
            await asyncio.sleep(10)
            assert made.log.tried == 1

    run_virtual(scenario())


def test_a_partition_has_its_turn_however_much_another_owes() -> None:
    async def scenario() -> None:
        async with two_owing(10, 3 * AT_ONCE) as (made, rank, (many, few)):
            await asyncio.sleep(1)
            rank.behind = 0
            while few.waits():
                await asyncio.sleep(0.001)
            assert many.waits()
            await asyncio.sleep(10)
            assert not many.waits()
            assert len(made.written()) == 3 * AT_ONCE

    run_virtual(scenario())


def test_the_less_is_kept_the_longer_others_have_the_loop() -> None:
    rests_s = [rest_s(1.0, fullness) for fullness in (0.0, 0.5, 1.0)]
    assert rests_s == sorted(rests_s, reverse=True)
    shares = [1 / (1 + rest) for rest in rests_s]
    assert shares == pytest.approx([0.02, 0.06, 0.1])
    assert rest_s(0.002, 0.5) == pytest.approx(2 * rest_s(0.001, 0.5))


@pytest.mark.parametrize(("is_behind", "share"), [(False, 0.02), (True, 0.1)])
def test_rendering_takes_its_share_of_the_loop(is_behind: bool, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    each_s, count = 2 * SLICE_S, 3

    def slowly_spelled(_decision: Kept) -> bytes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.take(each_s)
        return b""

    monkeypatch.setattr("drivers.decisions.writer.value_of", slowly_spelled)

    async def scenario() -> float:
        async with scene(1) as made:
            made.owed = Owed(Room())
            if is_behind:
                made.owed.miss(Gap(0, 1))
            (decision,), began_s = told_one(), asyncio.get_running_loop().time()
            assert await made.writer()._spelled([decision] * count) == [b""] * count
            return asyncio.get_running_loop().time() - began_s

    assert count * each_s / run_virtual(scenario()) == pytest.approx(share, rel=0.5)


def test_appends_that_are_lost_are_counted_and_made_again_after_a_while() -> None:
    async def scenario() -> None:
        async with scene(20) as made:
            made.log.failure = AppendUnknown("lost")
            writer = made.writer()
            async with running(writer):
                await asyncio.sleep(20)
                assert 0 < writer.failures == made.log.tried <= 20 * AT_ONCE, "each waits before the next"
                assert (writer.written, made.owed.owes_from(21)) == (0, 1)
                made.log.failure = None
                await asyncio.sleep(20)
            assert (writer.written, made.written()) == (20, [*range(1, 21)])

    run_virtual(scenario())


def test_a_log_that_is_another_stops_the_writer() -> None:
    async def scenario() -> None:
        async with scene(5) as made:
            made.log.failure = FatalError("another log")
            async with running(made.writer()) as task:
                with pytest.raises(ExceptionGroup) as ended:
                    await asyncio.wait_for(task, 60)
                assert ended.group_contains(FatalError, match="another log")

    run_virtual(scenario())


def test_what_is_too_old_to_be_kept_is_owed_no_more() -> None:
    async def scenario() -> None:
        async with scene(20, age_ms=31 * 86_400_000) as made:
            async with running(made.writer()):
                await asyncio.sleep(30)
            assert made.written() == []
            assert made.owed.owes_from(21) == 21, "or each restart would fold it again"

    run_virtual(scenario())


def test_the_first_in_rank_does_not_wait_for_a_clock_that_was_ahead() -> None:
    async def scenario() -> None:
        async with scene(20, age_ms=-600_000) as made:
            async with running(made.writer()):
                await asyncio.sleep(30)
            assert len(made.written()) == 20

    run_virtual(scenario())


def test_a_topic_that_is_away_at_the_start_is_waited_for_and_followed_then() -> None:
    async def scenario() -> None:
        async with scene(20) as made:
            made.log.outages = 7
            writer = made.writer(rank=10)
            async with running(writer):
                await asyncio.sleep(10)
                for offset in range(1, 21):
                    key = cause_at(made.partition, offset)
                    made.world.contents.add(made.topic, made.world.now_ms(), key, b"")
                stranger = b"zones/%d/5" % (1 - made.partition.number)  # of a partition that nobody here writes for
                made.world.contents.add(made.topic, made.world.now_ms(), stranger, b"")
                await asyncio.sleep(100)
            assert (made.log.outages, writer.written) == (0, 0), "another has written them"
            assert made.owed.owes_from(21) == 21

    run_virtual(scenario())


def test_of_what_was_written_before_us_only_the_last_is_doubted() -> None:
    """Of the last some may have failed while later ones landed; what lies before them was known to stand there."""

    async def scenario() -> None:
        async with scene(1) as made:
            count, hole = 3 * OVERLAP, 3 * OVERLAP - 9
            made.partition, made.owed = ZONES_0, told(*range(1, count + 3))
            for offset in range(1, count + 1):
                if offset != hole:
                    key = cause_at(ZONES_0, offset)
                    made.world.contents.add(Partition(DECISIONS, 0), made.world.now_ms(), key, b"")
            await made.writer()._look_back()
            left = offsets(made.owed.take(10 * OVERLAP, None))
            assert left == [*range(count + 1 - OVERLAP - 1, count + 3)]
            assert hole in left

    run_virtual(scenario())


def test_a_decision_goes_to_the_partition_of_its_cause() -> None:
    async def scenario() -> None:
        async with scene(3) as made:
            other = Partition(ZONES, 1 - made.partition.number)
            for partition in (made.partition, other):
                writer = made.writer()
                (decision,) = [again._replace(at=again.at._replace(partition=partition)) for again in told_one()]
                await writer._append(decision, b"v")
                last = made.world.contents.records[Partition(DECISIONS, partition.number)][-1]
                assert cause_of(last.key) == (partition, decision.at.offset)

    run_virtual(scenario())


def told_one() -> list[Kept]:
    return told(7).take(1, None)


def test_what_was_missed_is_made_again_when_the_log_is_back() -> None:
    async def scenario() -> None:
        async with scene(20) as made:
            made.log.reads_fail = 3
            async with running(made.writer()):
                await asyncio.sleep(60)
            assert (made.log.reads_fail, made.written()) == (0, [*range(1, 21)])

    run_virtual(scenario())


def test_what_was_missed_is_made_again_no_faster_than_it_is_written() -> None:
    async def scenario() -> None:
        async with scene(KEPT_RECORDS // 10 * 3) as made:
            async with running(made.writer(rank=1_000)):  # whose turn comes in half an hour
                await asyncio.sleep(60)
            assert not made.owed.has_room
            assert made.owed.gap is not None and made.owed.gap.start <= KEPT_RECORDS // 10 + STEP_RECORDS

    run_virtual(scenario())


def test_what_this_binary_cannot_fold_is_not_made_again_for_ever() -> None:
    async def scenario() -> None:
        async with scene(20) as made:
            raised = encode(FoldVersionUpgraded(made.world.command("fold"), 99))
            made.world.contents.add(made.partition, made.world.now_ms(), b"fold", raised)
            await asyncio.sleep(1)
            made.owed.restored(0, 25)  # by a binary that went on
            async with running(made.writer()):
                await asyncio.sleep(60)
                assert made.owed.gap is None
            assert made.written() == [*range(1, 21)]

    run_virtual(scenario())


def test_a_saved_state_that_lies_behind_what_is_missed_is_not_gone_on_from_and_is_closed(tmp_path: Path) -> None:
    class Closed(RocksStore):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            super().close()

    async def scenario() -> None:
        async with scene(20) as made:
            asked: list[tuple[Partition, int]] = []
            store = Closed(tmp_path)
            await save(made.replica.folded(made.partition), store)

            async def earlier(partition: Partition, position: int) -> Closed:
                asked.append((partition, position))
                return store

            made.owed.restored(5, 21)
            async with running(made.writer(earlier=earlier)):
                await asyncio.sleep(60)
            assert (asked, store.closed) == ([(made.partition, 5)], 1)
            assert made.written() == [*range(5, 21)]

    run_virtual(scenario())


@pytest.mark.parametrize(
    "key", [b"", b"zones", b"zones/1", b"zones/1/", b"zones//1", "zones/²/1".encode(), b"zones/1/-2", b"installs/0/1"]
)
def test_a_key_that_names_no_cause_is_passed_over(key: bytes) -> None:
    assert cause_of(key) is None
    assert cause_of(b"zones/1/12") == (Partition(ZONES, 1), 12)
