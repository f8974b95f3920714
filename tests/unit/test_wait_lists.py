"""Waits for the result of a fold are evaluated when a record may have ended them, and at no other time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from commands.queries.position_waiter import PositionWaiter
from eventstore.errors import LogUnavailable
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.replica import Replica
from eventstore.replicas.wait_lists import FoldWaitList
from tests.support.zones import ZoneLog

pytestmark = pytest.mark.virtual_clock

ZONES_0, ZONES_1 = Partition(ZONES, 0), Partition(ZONES, 1)
ONE, TWO, THREE = (Partition(ZONES, number) for number in range(3))


class Folded:
    """A replica with two zones of one node each, of which fleet has taken nothing."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.zones = {ZONES_0: ZoneLog(), ZONES_1: ZoneLog()}
        for log in self.zones.values():
            log.join("a")
        self.looked_at: list[Partition] = []
        self.fold_waits = FoldWaitList()

    def state(self, partition: Partition) -> object:
        if partition == FLEET_0:
            return SimpleNamespace(marks=self.marks)
        self.looked_at.append(partition)
        return self.zones[partition].state

    async def folds(self, partition: Partition) -> set[Partition]:
        """Something is folded there; whose zones are looked at for it."""
        self.looked_at.clear()
        self.fold_waits.wake(partition)
        await asyncio.sleep(0.01)
        return set(self.looked_at)


async def test_only_what_may_have_ended_a_wait_looks_at_it() -> None:
    folded = Folded()
    waiting = PositionWaiter(cast("Replica", folded))
    wait_0 = asyncio.create_task(waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=5))
    wait_1 = asyncio.create_task(waiting.wait_until_forwarded(ZONES_1, 1, timeout_s=5))
    await asyncio.sleep(0.01)
    assert await folded.folds(ZONES_1) == {ZONES_1}
    assert await folded.folds(FLEET_0) == {ZONES_0, ZONES_1}
    assert not wait_0.done() and not wait_1.done()
    folded.marks = {0: 1}
    await folded.folds(FLEET_0)
    assert wait_0.done() and not wait_1.done()
    folded.zones[ZONES_1].leave("a")
    folded.zones[ZONES_1].state.outbox_offsets.clear()
    await folded.folds(ZONES_1)
    assert wait_1.done()
    assert await folded.folds(FLEET_0) == set(), "nobody waits any more"


async def test_whoever_waits_in_vain_is_told_at_the_deadline_and_forgotten() -> None:
    folded = Folded()
    waiting = PositionWaiter(cast("Replica", folded))
    with pytest.raises(LogUnavailable, match="fleet has not received zones/0 up to 1 within the time limit"):
        await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=5)
    assert await folded.folds(FLEET_0) == set()
    folded.marks = {0: 1}
    await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=0)


# -- waits of drivers


class Need:
    """Something that holds or does not, and how often somebody looked."""

    def __init__(self) -> None:
        self.holds = False
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.holds


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waits_for_something_returns_once_it_holds_and_is_looked_at_only_when_something_is_folded() -> None:
    watch, need = FoldWaitList(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE, TWO))
    await settled()
    assert need.looks == 1
    watch.wake(THREE)
    assert need.looks == 1, "it does not hang on that"
    watch.wake(ONE)
    watch.wake(TWO)
    await settled()
    assert need.looks == 3
    assert not waiting.done()
    need.holds = True
    await settled()
    assert not waiting.done(), "nothing was folded"
    watch.wake(TWO)
    await settled()
    assert waiting.done()


async def test_what_holds_already_is_not_waited_for() -> None:
    need = Need()
    need.holds = True
    await asyncio.wait_for(FoldWaitList().wait_for(need, ONE), 1.0)
    assert need.looks == 1


async def test_what_holds_no_more_when_its_turn_comes_is_waited_for_again() -> None:
    watch, need = FoldWaitList(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE))
    await settled()
    need.holds = True
    watch.wake(ONE)
    need.holds = False
    await settled()
    assert not waiting.done()
    need.holds = True
    watch.wake(ONE)
    await settled()
    assert waiting.done()


async def test_nobody_is_looked_at_twice_for_what_is_folded_at_once() -> None:
    watch, need = FoldWaitList(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE, TWO))
    await settled()
    need.holds = True
    watch.wake(ONE, TWO)
    assert need.looks == 2
    await waiting


async def test_who_has_gone_is_looked_at_no_more() -> None:
    watch, need = FoldWaitList(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE, TWO))
    await settled()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    watch.wake(ONE, TWO)
    assert need.looks == 1


async def test_who_waits_for_any_change_returns_at_the_first_of_its_partitions() -> None:
    watch = FoldWaitList()
    waiting = [asyncio.ensure_future(watch.changed(ONE)), asyncio.ensure_future(watch.changed(TWO, THREE))]
    await settled()
    watch.wake(THREE)
    await settled()
    assert [each.done() for each in waiting] == [False, True]
    watch.wake(ONE)
    await asyncio.gather(*waiting)


async def test_a_predicate_that_raises_raises_where_it_is_waited_for_and_nowhere_else() -> None:
    waits, need = FoldWaitList(), Need()

    def broken() -> bool:
        return bool(need.looks and 1 // 0)

    waiting = [asyncio.ensure_future(waits.wait_for(each, ONE)) for each in (broken, need)]
    await settled()
    need.holds = True
    waits.wake(ONE)
    await settled()
    with pytest.raises(ZeroDivisionError):
        await waiting[0]
    assert await waiting[1]


async def test_what_came_to_hold_without_a_record_of_the_partition_is_seen_when_the_time_is_over() -> None:
    waits, need = FoldWaitList(), Need()
    waiting = asyncio.ensure_future(waits.wait_for(need, ONE, timeout_s=2.0))
    await asyncio.sleep(1.0)
    need.holds = True
    assert await waiting
    need.holds = False
    assert not await waits.wait_for(need, ONE, timeout_s=2.0)
