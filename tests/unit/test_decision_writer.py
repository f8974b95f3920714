"""The decision writer under failures: appends that are lost, cancelled or refused, and a topic that is unavailable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deploy.composition.topics import TOPICS
from drivers.decisions import writer as writing
from drivers.decisions.writer import CHECK_S, SLICE_S, TURN_MS
from drivers.decisions.written import AT_ONCE, REMEMBERED
from eventstore.errors import AppendUnknown, FatalError
from eventstore.folding.decision_listener import DecidedRecord
from eventstore.log import DECISIONS, ZONES, Partition
from tests.support.decision_writers import DecidingPlane, cause_at, deciding_plane
from tests.support.memory_log import MemoryLog
from tests.support.memory_plane import Life
from tests.support.virtual_loop import VirtualLoop

pytestmark = pytest.mark.virtual_clock

PLACE = TOPICS.partition_for(ZONES, "z", 2)
TOPIC = Partition(DECISIONS, PLACE.number)


@asynccontextmanager
async def plane_with_joins(count: int, *, age_ms: int = 0) -> AsyncIterator[DecidingPlane]:
    """A plane whose log has `count` joins of this age, and no decision writer yet."""
    async with deciding_plane(1) as world:
        await world.start("api", "api", acts=False)  # without a forwarder, the joins are the only records to decide
        world.joined(count, age_ms=age_ms)
        yield world


async def started(world: DecidingPlane, name: str = "one") -> Life:
    life = await world.start(name, "decisions", is_ready=False)
    await asyncio.sleep(5)
    return life


def writer_of(life: Life) -> Any:
    assert life.writer is not None
    return life.writer


async def test_the_fold_and_its_saves_wait_for_the_decisions_topic() -> None:
    async with plane_with_joins(20) as world:
        world.failures.hangs = True
        life = await started(world)
        assert len(world.tried()) == 20
        world.joined(5)
        await asyncio.sleep(5)
        assert life.replica.position(PLACE) == 21, "the next slice waits for the decisions of the first"
        assert life.store.head(PLACE) is None
        for task in life.tasks:
            task.cancel()
        await asyncio.gather(*life.tasks, return_exceptions=True)
        await life.replica.save()
        assert life.store.head(PLACE) is None, "a save would lose the unwritten decisions at a restart"
        world.failures.hangs = False
        await world.start("one", "decisions")
        assert world.causes(PLACE) == [*range(1, 26)]


async def test_no_decision_is_appended_before_the_former_batch_is_in_the_topic() -> None:
    async with plane_with_joins(3 * AT_ONCE) as world:
        world.failures.hangs = True
        await started(world)
        assert len(world.tried()) == AT_ONCE
        assert world.tried() == [cause_at(PLACE, offset) for offset in range(1, AT_ONCE + 1)]


async def test_batches_in_flight_are_limited_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BATCH_BYTES", 1)
    async with plane_with_joins(20) as world:
        world.failures.hangs = True
        await started(world)
        assert len(world.tried()) == 1


async def test_lost_appends_are_counted_and_repeated_after_a_wait() -> None:
    async with plane_with_joins(20) as world:
        world.failures.append_error = AppendUnknown("lost")
        life = await started(world)
        await asyncio.sleep(30)
        assert 0 < writer_of(life).failures == len(world.tried()) <= 20 * 100, (
            "a lost append waits before it is repeated"
        )
        assert (writer_of(life).written, world.causes(PLACE)) == (0, [])
        world.failures.append_error = None
        await asyncio.sleep(30)
        assert (writer_of(life).written, world.causes(PLACE)) == (20, [*range(1, 21)])


async def test_an_append_that_landed_in_spite_of_an_error_is_not_repeated() -> None:
    async with plane_with_joins(20) as world:
        world.failures.append_error = AppendUnknown("lost")
        await started(world)
        world.log.attempts.clear()
        world.write_elsewhere(PLACE, range(1, 21))
        world.failures.append_error = None
        await asyncio.sleep(30)
        assert world.tried() == []


async def test_another_log_stops_the_writer() -> None:
    with pytest.raises(ExceptionGroup) as ended:
        async with plane_with_joins(5) as world:
            world.failures.append_error = FatalError("another log")
            await world.start("one", "decisions", is_ready=False)
            await asyncio.sleep(60)
    assert ended.group_contains(FatalError, match="another log")


async def test_decisions_older_than_the_retention_are_not_written() -> None:
    async with plane_with_joins(20, age_ms=31 * 86_400_000) as world:
        life = await world.start("one", "decisions")
        assert (world.tried(), life.replica.position(PLACE)) == ([], 21)


async def test_the_first_in_rank_writes_decisions_with_future_times_at_once() -> None:
    async with plane_with_joins(20, age_ms=-600_000) as world:
        await world.start("one", "decisions")
        assert len(world.causes(PLACE)) == 20


async def test_the_writer_waits_for_a_topic_that_is_unavailable_at_the_start() -> None:
    async with plane_with_joins(20) as world:
        world.failures.lost_ends = 7
        await world.start("one", "decisions")
        assert (world.failures.lost_ends, world.causes(PLACE)) == (0, [*range(1, 21)])


# -- several writers


async def test_a_writer_of_lower_rank_follows_the_first_without_writing() -> None:
    async with plane_with_joins(0) as world:
        first, second = await world.start("one", "decisions"), await world.start("two", "decisions")
        for _ in range(200):
            world.joined(5)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        assert (writer_of(first).written, writer_of(second).written) == (1_000, 0)
        assert second.replica.position(PLACE) == 1_001


async def test_a_writer_of_lower_rank_finally_writes_what_the_first_does_not() -> None:
    async with plane_with_joins(0) as world:
        world.first.append("silent")
        life = await world.start("one", "decisions")
        world.joined(5)
        await asyncio.sleep(TURN_MS / 1_000 - CHECK_S)
        assert world.causes(PLACE) == []
        await asyncio.sleep(2 * CHECK_S)
        assert (writer_of(life).written, world.causes(PLACE)) == (5, [*range(1, 6)])


async def test_a_writer_takes_over_at_once_when_the_first_is_gone() -> None:
    async with plane_with_joins(0) as world:
        world.first.append("silent")
        await world.start("one", "decisions")
        world.joined(5)
        await asyncio.sleep(1)
        world.gone.add("silent")
        await asyncio.sleep(2 * CHECK_S)
        assert world.causes(PLACE) == [*range(1, 6)]


# -- restarts


async def test_decisions_in_the_topic_are_not_written_again_after_a_loss_of_state() -> None:
    async with plane_with_joins(3 * REMEMBERED) as world:
        await world.start("one", "decisions")
        world.kill("one")
        del world.disks["one"]
        world.log.attempts.clear()
        life = await world.start("one", "decisions")
        assert (world.tried(), writer_of(life).written) == ([], 0)


async def test_the_missing_part_of_a_batch_is_written() -> None:
    async with plane_with_joins(2 * AT_ONCE) as world:
        holes = {1, 7, AT_ONCE}
        world.write_elsewhere(PLACE, [offset for offset in range(1, AT_ONCE + 1) if offset not in holes])
        life = await world.start("one", "decisions")
        assert writer_of(life).written == AT_ONCE + len(holes)
        assert world.causes(PLACE) == [*range(1, 2 * AT_ONCE + 1)]


async def test_only_the_end_of_the_topic_is_read_if_the_state_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    async with plane_with_joins(50) as world:
        await world.start("one", "decisions")
        await asyncio.sleep(200)
        world.kill("one")
        world.joined(1)
        read: list[int] = []
        original = MemoryLog.read

        def noted(self: MemoryLog, positions: Any) -> Any:
            read.extend(positions[place] for place in positions if place == TOPIC)
            return original(self, positions)

        monkeypatch.setattr(MemoryLog, "read", noted)
        life = await world.start("one", "decisions")
        assert (read, writer_of(life).written) == ([50], 1)


async def test_rendering_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    count, turns = 60, 0
    rendered_at: list[int] = []
    original = writing.value_of
    others: list[asyncio.Task[None]] = []

    async def take_turns() -> None:
        nonlocal turns
        while len(rendered_at) < count:
            turns += 1
            await asyncio.sleep(0)

    def slowly_rendered(decision: DecidedRecord) -> bytes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.take(SLICE_S / 2)
        if not others:
            others.append(asyncio.create_task(take_turns()))
        rendered_at.append(turns)
        return original(decision)

    monkeypatch.setattr(writing, "value_of", slowly_rendered)
    async with plane_with_joins(count) as world:
        await world.start("one", "decisions")
    assert len(rendered_at) == count
    assert max(Counter(rendered_at).values()) == 2


async def test_a_decision_goes_to_the_partition_of_its_cause() -> None:
    async with plane_with_joins(3) as world:
        zone = next(zone for zone in map(str, range(10)) if TOPICS.partition_for(ZONES, zone, 2) != PLACE)
        world.joined(2, zone)
        await world.start("one", "decisions")
        for place, count in ((PLACE, 3), (Partition(ZONES, 1 - PLACE.number), 2)):
            assert world.causes(place) == [*range(1, count + 1)]
