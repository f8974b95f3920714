"""Waiting for the result of a fold, without a task that polls after every fold."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from drivers.fold_watcher import FoldWatcher
from eventstore.log import ZONES, Partition
from tests.support.memory_log import MemoryLog
from tests.support.replicas import toy_replica

pytestmark = pytest.mark.virtual_clock

ONE, TWO, THREE = (Partition(ZONES, number) for number in range(3))


class Need:
    """Something that holds or does not, and how often somebody looked."""

    def __init__(self) -> None:
        self.holds = False
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.holds


def fold_watcher() -> FoldWatcher:
    return FoldWatcher(toy_replica(MemoryLog()), ZONES)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waits_for_something_returns_once_it_holds_and_is_looked_at_only_when_something_is_folded() -> None:
    watch, need = fold_watcher(), Need()
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
    await asyncio.wait_for(fold_watcher().wait_for(need, ONE), 1.0)
    assert need.looks == 1


async def test_what_holds_no_more_when_its_turn_comes_is_waited_for_again() -> None:
    watch, need = fold_watcher(), Need()
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
    watch, need = fold_watcher(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE, TWO))
    await settled()
    need.holds = True
    watch.wake(ONE, TWO)
    assert need.looks == 2
    await waiting


async def test_who_has_gone_is_looked_at_no_more() -> None:
    watch, need = fold_watcher(), Need()
    waiting = asyncio.ensure_future(watch.wait_for(need, ONE, TWO))
    await settled()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    watch.wake(ONE, TWO)
    assert need.looks == 1


async def test_who_waits_for_any_change_returns_at_the_first_of_its_partitions() -> None:
    watch = fold_watcher()
    waiting = [asyncio.ensure_future(watch.changed(ONE)), asyncio.ensure_future(watch.changed(TWO, THREE))]
    await settled()
    watch.wake(THREE)
    await settled()
    assert [each.done() for each in waiting] == [False, True]
    watch.wake(ONE)
    await asyncio.gather(*waiting)
