"""A waiter for fleet is checked when its position may have been reached, and at no other time."""

from __future__ import annotations

import asyncio
import heapq
from types import SimpleNamespace
from typing import cast

import pytest

from commands.queries.position_waiter import PositionWaiter
from eventstore.errors import LogUnavailable
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.replica import Replica, Watch
from eventstore.replicas.wait_lists import PositionWaitList
from tests.support.zones import ZoneLog

pytestmark = pytest.mark.virtual_clock

ZONES_0, ZONES_1 = Partition(ZONES, 0), Partition(ZONES, 1)


class Folded:
    """A replica with two zones of one node each, of which fleet has taken nothing."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.zones = {ZONES_0: ZoneLog(), ZONES_1: ZoneLog()}
        for log in self.zones.values():
            log.join("a")
        self.looked_at: list[Partition] = []
        self._watch: Watch | None = None

    def state(self, partition: Partition) -> object:
        if partition == FLEET_0:
            return SimpleNamespace(marks=self.marks)
        self.looked_at.append(partition)
        return self.zones[partition].state

    def watch(self, *topics: str) -> Watch:
        self._watch = Watch(frozenset(topics), lambda watch: None)
        return self._watch

    async def folds(self, partition: Partition) -> set[Partition]:
        """Something is folded there; whose zones are looked at for it."""
        self.looked_at.clear()
        assert self._watch is not None
        self._watch.notify(partition)
        await asyncio.sleep(0.01)
        return set(self.looked_at)


async def test_only_what_may_have_ended_a_wait_looks_at_it() -> None:
    folded = Folded()
    waiting = PositionWaiter(cast("Replica", folded))
    watching = asyncio.create_task(waiting.run())
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
    watching.cancel()


async def test_whoever_waits_in_vain_is_told_at_the_deadline_and_forgotten() -> None:
    folded = Folded()
    waiting = PositionWaiter(cast("Replica", folded))
    watching = asyncio.create_task(waiting.run())
    with pytest.raises(LogUnavailable, match="fleet has not received zones/0 up to 1 within the time limit"):
        await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=5)
    assert await folded.folds(FLEET_0) == set()
    folded.marks = {0: 1}
    await waiting.wait_until_forwarded(ZONES_0, 1, timeout_s=0)
    watching.cancel()


async def test_many_who_give_up_at_once_are_let_go_of_together_and_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps = 0

    def counted(heap: list[tuple[int, int, asyncio.Future[None]]]) -> None:
        nonlocal heaps
        heaps += 1
        heapq.heapify(heap)

    monkeypatch.setattr("eventstore.replicas.wait_lists.heapify", counted)
    positions = PositionWaitList()
    stay = [asyncio.create_task(positions.wait_for_position(FLEET_0, 10 * number)) for number in range(1, 4)]
    leave = [asyncio.create_task(positions.wait_for_position(FLEET_0, 15 + number)) for number in range(5_000)]
    await asyncio.sleep(0.01)
    for task in leave:
        task.cancel()
    await asyncio.wait(leave)
    assert 1 <= heaps <= 3
    assert len(positions._partitions[FLEET_0].heap) < 200
    positions.advance(FLEET_0, 29)
    await asyncio.sleep(0.01)
    assert [task.done() for task in stay] == [True, True, False]
    positions.advance(FLEET_0, 30)
    await stay[2]
