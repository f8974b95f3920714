"""Many deadlines behind one timer: each fails at its own time, and nobody who is done or dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.deadlines import Deadlines
from tests.support.virtual_loop import run_virtual


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


def test_a_deadline_that_passes_does_not_end_others() -> None:
    async def main() -> None:
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        short, long = loop.create_future(), loop.create_future()
        deadlines.put(long, 9.0, Late)
        deadlines.put(short, 1.0, Late)
        await asyncio.wait((short,))
        assert not long.done()
        await asyncio.wait((long,))
        assert isinstance(long.exception(), Late)
        assert loop.time() == pytest.approx(9.0, abs=0.0011)

    run_virtual(main())
