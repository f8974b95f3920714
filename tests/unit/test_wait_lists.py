"""Conditions of waits are checked only when a folded record may have changed them."""

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
from tests.support.zones import ZonesPartition

pytestmark = pytest.mark.virtual_clock

ZONES_0, ZONES_1 = Partition(ZONES, 0), Partition(ZONES, 1)
ONE, TWO, THREE = (Partition(ZONES, number) for number in range(3))


class Folded:
    """A replica with two zones partitions of one node each, of which fleet has received no record."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.zones = {ZONES_0: ZonesPartition(), ZONES_1: ZonesPartition()}
        for log in self.zones.values():
            log.join("a")
        self.checked: list[Partition] = []
        self.fold_waits = FoldWaitList()

    def state(self, partition: Partition) -> object:
        if partition == FLEET_0:
            return SimpleNamespace(marks=self.marks)
        self.checked.append(partition)
        return self.zones[partition].state

    async def folds(self, partition: Partition) -> set[Partition]:
        """Wake the waits on a partition. Returns the zones partitions whose state the waits then check."""
        self.checked.clear()
        self.fold_waits.wake(partition)
        await asyncio.sleep(0.01)
        return set(self.checked)


async def test_a_wait_is_checked_after_records_of_its_partitions_only() -> None:
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
    assert await folded.folds(FLEET_0) == set(), "no wait is left"


async def test_a_wait_fails_at_its_deadline_and_is_removed() -> None:
    folded = Folded()
    waiting = PositionWaiter(cast("Replica", folded))
    with pytest.raises(LogUnavailable, match="fleet has not received zones/0 up to 1 within the time limit"):
        await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=5)
    assert await folded.folds(FLEET_0) == set()
    folded.marks = {0: 1}
    await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=0)


# -- waits of drivers


class Condition:
    """A condition set by the test. `checks` counts its evaluations."""

    def __init__(self) -> None:
        self.holds = False
        self.checks = 0

    def __call__(self) -> bool:
        self.checks += 1
        return self.holds


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_wait_ends_when_its_condition_holds_after_a_record_of_its_partitions() -> None:
    watch, condition = FoldWaitList(), Condition()
    waiting = asyncio.ensure_future(watch.wait_for(condition, ONE, TWO))
    await settled()
    assert condition.checks == 1
    watch.wake(THREE)
    assert condition.checks == 1, "the condition does not depend on partition 2"
    watch.wake(ONE)
    watch.wake(TWO)
    await settled()
    assert condition.checks == 3
    assert not waiting.done()
    condition.holds = True
    await settled()
    assert not waiting.done(), "no record was folded since"
    watch.wake(TWO)
    await settled()
    assert waiting.done()


async def test_a_condition_that_holds_already_ends_the_wait_at_once() -> None:
    condition = Condition()
    condition.holds = True
    await asyncio.wait_for(FoldWaitList().wait_for(condition, ONE), 1.0)
    assert condition.checks == 1


async def test_a_condition_that_no_longer_holds_when_the_waiter_runs_is_waited_for_again() -> None:
    watch, condition = FoldWaitList(), Condition()
    waiting = asyncio.ensure_future(watch.wait_for(condition, ONE))
    await settled()
    condition.holds = True
    watch.wake(ONE)
    condition.holds = False
    await settled()
    assert not waiting.done()
    condition.holds = True
    watch.wake(ONE)
    await settled()
    assert waiting.done()


async def test_a_condition_is_checked_once_for_records_of_several_partitions() -> None:
    watch, condition = FoldWaitList(), Condition()
    waiting = asyncio.ensure_future(watch.wait_for(condition, ONE, TWO))
    await settled()
    condition.holds = True
    watch.wake(ONE, TWO)
    assert condition.checks == 2
    await waiting


async def test_a_cancelled_wait_is_not_checked_again() -> None:
    watch, condition = FoldWaitList(), Condition()
    waiting = asyncio.ensure_future(watch.wait_for(condition, ONE, TWO))
    await settled()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    watch.wake(ONE, TWO)
    assert condition.checks == 1


async def test_a_wait_for_any_change_ends_at_the_first_record_of_its_partitions() -> None:
    watch = FoldWaitList()
    waiting = [asyncio.ensure_future(watch.changed(ONE)), asyncio.ensure_future(watch.changed(TWO, THREE))]
    await settled()
    watch.wake(THREE)
    await settled()
    assert [each.done() for each in waiting] == [False, True]
    watch.wake(ONE)
    await asyncio.gather(*waiting)


async def test_a_condition_that_raises_fails_its_own_waiter_only() -> None:
    waits, condition = FoldWaitList(), Condition()

    def broken() -> bool:
        return bool(condition.checks and 1 // 0)

    waiting = [asyncio.ensure_future(waits.wait_for(each, ONE)) for each in (broken, condition)]
    await settled()
    condition.holds = True
    waits.wake(ONE)
    await settled()
    with pytest.raises(ZeroDivisionError):
        await waiting[0]
    assert await waiting[1]


async def test_a_condition_is_checked_once_more_at_its_deadline() -> None:
    waits, condition = FoldWaitList(), Condition()
    waiting = asyncio.ensure_future(waits.wait_for(condition, ONE, timeout_s=2.0))
    await asyncio.sleep(1.0)
    condition.holds = True
    assert await waiting
    condition.holds = False
    assert not await waits.wait_for(condition, ONE, timeout_s=2.0)
