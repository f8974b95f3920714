"""Many deadlines behind one timer: each fails at its own time, and nobody who is done or dropped."""

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


class Late(Exception):
    """A deadline has passed."""


@given(
    st.lists(
        st.tuples(st.floats(0.0, 50.0), st.floats(0.01, 50.0), st.sampled_from(["late", "done", "dropped"])),
        max_size=8,
    )
)
def test_each_fails_at_its_own_time_unless_it_is_done_or_dropped(waits: Sequence[tuple[float, float, str]]) -> None:
    async def wait(deadlines: Deadlines, begin_s: float, timeout_s: float, fate: str) -> None:
        await asyncio.sleep(begin_s)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        deadlines.put(future, timeout_s, Late)
        if fate == "done":
            loop.call_later(timeout_s / 2, future.set_result, None)
        if fate == "dropped":
            deadlines.drop(future)
        await asyncio.wait((future,), timeout=200.0)
        assert future.done() == (fate != "dropped")
        if fate == "late":
            assert isinstance(future.exception(), Late)
            assert loop.time() - begin_s == pytest.approx(timeout_s, abs=0.0011)

    async def wait_all() -> None:
        deadlines = Deadlines()
        async with asyncio.TaskGroup() as tasks:
            for wait_of_one in waits:
                tasks.create_task(wait(deadlines, *wait_of_one))

    run_virtual(wait_all())


async def test_a_deadline_that_passes_does_not_end_others() -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    short, long = loop.create_future(), loop.create_future()
    deadlines.put(long, 9.0, Late)
    deadlines.put(short, 1.0, Late)
    await asyncio.wait((short,))
    assert not long.done()
    await asyncio.wait((long,))
    assert isinstance(long.exception(), Late)
    assert loop.time() == pytest.approx(9.0, abs=0.0011)


class Compared(float):
    """A time that counts how often any such is looked at."""

    looks = 0

    def __radd__(self, other: float) -> Compared:
        return Compared(other + float(self))

    def __eq__(self, other: object) -> bool:
        Compared.looks += 1
        return float.__eq__(self, other)

    def __lt__(self, other: float) -> bool:
        Compared.looks += 1
        return float.__lt__(self, other)

    def __le__(self, other: float) -> bool:
        Compared.looks += 1
        return float.__le__(self, other)

    __hash__ = float.__hash__


def _looks(count: int) -> int:
    """How often deadlines are looked at until so many, a few milliseconds apart, have passed."""

    async def main() -> None:
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(count)]
        for i, future in enumerate(futures):
            deadlines.put(future, Compared(1.0 + i * 0.003), Late)
        await asyncio.gather(*futures, return_exceptions=True)

    Compared.looks = 0
    run_virtual(main())
    return Compared.looks


def test_deadlines_that_pass_one_by_one_do_not_look_at_all_that_wait() -> None:
    """In an outage nobody has an answer, and thousands wait."""
    few, many = _looks(200), _looks(800)
    assert few > 0
    assert many < 8 * few, "n log n, and not the square"


async def test_those_who_are_done_are_let_go_long_before_their_time() -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    kept = weakref.WeakSet[asyncio.Future[None]]()
    for _ in range(5_000):
        future: asyncio.Future[None] = loop.create_future()
        kept.add(future)
        deadlines.put(future, 3_600.0, Late)
        deadlines.drop(future)
    assert len(kept) < 300
