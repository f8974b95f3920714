"""Many deadlines share one timer: each future fails at its own time, unless it is done or dropped before."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.deadlines import Deadlines
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock


class DeadlinePassed(Exception):
    """A deadline has passed."""


@given(
    st.lists(
        st.tuples(st.floats(0.0, 50.0), st.floats(0.01, 50.0), st.sampled_from(["late", "done", "dropped"])),
        max_size=8,
    )
)
def test_a_future_fails_at_its_deadline_unless_it_is_done_or_dropped(waits: Sequence[tuple[float, float, str]]) -> None:
    async def wait(deadlines: Deadlines, begin_s: float, timeout_s: float, fate: str) -> None:
        await asyncio.sleep(begin_s)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        deadlines.put(future, timeout_s, DeadlinePassed)
        if fate == "done":
            loop.call_later(timeout_s / 2, future.set_result, None)
        if fate == "dropped":
            deadlines.drop(future)
        await asyncio.wait((future,), timeout=200.0)
        assert future.done() == (fate != "dropped")
        if fate == "late":
            assert isinstance(future.exception(), DeadlinePassed)
            assert loop.time() - begin_s == pytest.approx(timeout_s, abs=0.0011)

    async def wait_all() -> None:
        deadlines = Deadlines()
        async with asyncio.TaskGroup() as tasks:
            for wait_of_one in waits:
                tasks.create_task(wait(deadlines, *wait_of_one))

    run_virtual(wait_all())


async def test_a_passed_deadline_does_not_fail_other_futures() -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    short, long = loop.create_future(), loop.create_future()
    deadlines.put(long, 9.0, DeadlinePassed)
    deadlines.put(short, 1.0, DeadlinePassed)
    await asyncio.wait((short,))
    assert not long.done()
    await asyncio.wait((long,))
    assert isinstance(long.exception(), DeadlinePassed)
    assert loop.time() == pytest.approx(9.0, abs=0.0011)


class Compared(float):
    """A time that counts the comparisons of all its instances."""

    count = 0

    def __radd__(self, other: float) -> Compared:
        return Compared(other + float(self))

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return float.__eq__(self, other)

    def __lt__(self, other: float) -> bool:
        Compared.count += 1
        return float.__lt__(self, other)

    def __le__(self, other: float) -> bool:
        Compared.count += 1
        return float.__le__(self, other)

    __hash__ = float.__hash__


def _comparisons(deadlines_count: int) -> int:
    """The comparisons until this number of deadlines, a few milliseconds apart, has passed."""

    async def main() -> None:
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(deadlines_count)]
        for i, future in enumerate(futures):
            deadlines.put(future, Compared(1.0 + i * 0.003), DeadlinePassed)
        await asyncio.gather(*futures, return_exceptions=True)

    Compared.count = 0
    run_virtual(main())
    return Compared.count


def test_passing_deadlines_are_not_compared_with_all_others() -> None:
    """In an outage thousands of calls wait, and their deadlines pass one by one."""
    few, many = _comparisons(200), _comparisons(800)
    assert few > 0
    assert many < 8 * few, "the cost must be n log n and not n squared"


async def test_dropped_futures_are_released_long_before_their_deadline() -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    alive = weakref.WeakSet[asyncio.Future[None]]()
    for _ in range(5_000):
        future: asyncio.Future[None] = loop.create_future()
        alive.add(future)
        deadlines.put(future, 3_600.0, DeadlinePassed)
        deadlines.drop(future)
    assert len(alive) < 300
