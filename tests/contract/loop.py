"""The behaviour of an event loop on which production code relies; run unchanged against asyncio's loop and the
virtual one.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

import pytest

STEP_S = 0.02
"""Timers that must not be taken for one another are so far apart."""

_about: contextvars.ContextVar[str] = contextvars.ContextVar("about", default="nobody")


class LoopContract(ABC):
    """Scenarios record events in their order."""

    @abstractmethod
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Run a scenario on a fresh loop."""

    @pytest.fixture(autouse=True)
    def _notes(self) -> None:
        self.notes: list[object] = []

    async def _note_after(self, delay_s: float, what: object) -> None:
        await asyncio.sleep(delay_s)
        self.notes.append(what)

    def test_timers_fire_in_order_of_their_times_and_never_early(self) -> None:
        async def scenario() -> None:
            began_s, delays = asyncio.get_running_loop().time(), [3, 1, 2, 0, 4]
            await asyncio.gather(*(self._note_after(delay * STEP_S, delay) for delay in delays))
            assert asyncio.get_running_loop().time() >= began_s + 4 * STEP_S

        self.run(scenario())
        assert self.notes == [0, 1, 2, 3, 4]

    def test_what_is_called_soon_is_called_in_turn_and_not_at_once(self) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            for number in range(5):
                loop.call_soon(self.notes.append, number)
            self.notes.append("first")
            await asyncio.sleep(0)

        self.run(scenario())
        assert self.notes == ["first", 0, 1, 2, 3, 4]

    def test_a_timer_that_was_cancelled_does_not_fire(self) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(STEP_S, self.notes.append, "cancelled")
            assert timer.when() > loop.time()
            soon = loop.call_soon(self.notes.append, "cancelled too")
            timer.cancel()
            soon.cancel()
            assert timer.cancelled() and soon.cancelled()
            await self._note_after(2 * STEP_S, "end")

        self.run(scenario())
        assert self.notes == ["end"]

    def test_a_timeout_cancels_what_is_awaited_and_nothing_else(self) -> None:
        async def scenario() -> None:
            other = asyncio.create_task(self._note_after(2 * STEP_S, "other"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await asyncio.get_running_loop().create_future()
            self.notes.append("timed out")
            await other

        self.run(scenario())
        assert self.notes == ["timed out", "other"]

    def test_a_task_that_fails_cancels_its_siblings(self) -> None:
        async def fails() -> None:
            await asyncio.sleep(STEP_S)
            raise ValueError("it failed")

        async def waits(name: str) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.notes.append(name)
                raise

        async def scenario() -> None:
            with pytest.raises(ExceptionGroup) as raised:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(waits("a"))
                    tasks.create_task(fails())
                    tasks.create_task(waits("b"))
            assert [str(error) for error in raised.value.exceptions] == ["it failed"]

        self.run(scenario())
        assert sorted(map(str, self.notes)) == ["a", "b"]

    def test_a_cancelled_task_runs_its_cleanup_before_who_waits_for_it_goes_on(self) -> None:
        async def scenario() -> None:
            async def holds() -> None:
                try:
                    await asyncio.sleep(100 * STEP_S)
                finally:
                    await asyncio.sleep(0)
                    self.notes.append("cleaned up")

            task = asyncio.create_task(holds())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            self.notes.append("went on")
            assert task.cancelled()

        self.run(scenario())
        assert self.notes == ["cleaned up", "went on"]

    def test_a_queue_gives_in_order_to_those_who_came_first(self) -> None:
        async def scenario() -> None:
            queue: asyncio.Queue[int] = asyncio.Queue(2)

            async def takes() -> None:
                for _ in range(6):
                    self.notes.append(await queue.get())

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(takes())
                for number in range(6):
                    await queue.put(number)

        self.run(scenario())
        assert self.notes == [0, 1, 2, 3, 4, 5]

    def test_a_task_and_its_timers_see_the_context_they_were_made_in(self) -> None:
        async def scenario() -> None:
            _about.set("me")
            asyncio.get_running_loop().call_later(STEP_S, lambda: self.notes.append(_about.get()))
            task = asyncio.create_task(self._note_after(0.0, "task"))
            _about.set("somebody else")
            await task
            await asyncio.sleep(2 * STEP_S)

        self.run(scenario())
        assert self.notes == ["task", "me"]

    def test_a_callback_that_raises_is_reported_and_the_loop_goes_on(self) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, about: self.notes.append(str(about["exception"])))
            loop.call_soon(int, "no number")
            await self._note_after(STEP_S, "end")

        self.run(scenario())
        assert self.notes == ["invalid literal for int() with base 10: 'no number'", "end"]

    def test_generators_that_were_left_open_are_closed_at_the_end(self) -> None:
        async def endless() -> Any:
            try:
                while True:
                    yield 1
            finally:
                self.notes.append("closed")

        async def scenario() -> None:
            self.left_open = endless()
            await anext(self.left_open)

        self.run(scenario())
        assert self.notes == ["closed"]
