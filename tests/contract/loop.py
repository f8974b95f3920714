"""The behaviour of an event loop that production code relies on. The tests run unchanged on asyncio's loop and on the
virtual one.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

import pytest

STEP_S = 0.1
"""The distance between timers that must fire in order, although a busy machine may set them a moment apart."""

_context_value: contextvars.ContextVar[str] = contextvars.ContextVar("about", default="none")


class LoopContract(ABC):
    """The contract. Scenarios note their events in order."""

    @abstractmethod
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Run a scenario on a fresh loop."""

    @pytest.fixture(autouse=True)
    def _notes(self) -> None:
        self.notes: list[object] = []

    async def _note_after(self, delay_s: float, what: object) -> None:
        await asyncio.sleep(delay_s)
        self.notes.append(what)

    def test_timers_fire_in_order_and_never_early(self) -> None:
        async def scenario() -> None:
            began_s, delays = asyncio.get_running_loop().time(), [3, 1, 2, 0, 4]
            await asyncio.gather(*(self._note_after(delay * STEP_S, delay) for delay in delays))
            assert asyncio.get_running_loop().time() >= began_s + 4 * STEP_S

        self.run(scenario())
        assert self.notes == [0, 1, 2, 3, 4]

    def test_call_soon_runs_callbacks_later_and_in_order(self) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            for number in range(5):
                loop.call_soon(self.notes.append, number)
            self.notes.append("first")
            await asyncio.sleep(0)

        self.run(scenario())
        assert self.notes == ["first", 0, 1, 2, 3, 4]

    def test_a_cancelled_timer_does_not_fire(self) -> None:
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

    def test_a_timeout_cancels_only_what_it_awaits(self) -> None:
        async def scenario() -> None:
            other = asyncio.create_task(self._note_after(2 * STEP_S, "other"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await asyncio.get_running_loop().create_future()
            self.notes.append("timed out")
            await other

        self.run(scenario())
        assert self.notes == ["timed out", "other"]

    def test_a_failed_task_cancels_its_siblings(self) -> None:
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

    def test_a_cancelled_task_runs_its_cleanup_before_its_waiters_continue(self) -> None:
        async def scenario() -> None:
            async def sleeps() -> None:
                try:
                    await asyncio.sleep(100 * STEP_S)
                finally:
                    await asyncio.sleep(0)
                    self.notes.append("cleaned up")

            task = asyncio.create_task(sleeps())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            self.notes.append("continued")
            assert task.cancelled()

        self.run(scenario())
        assert self.notes == ["cleaned up", "continued"]

    def test_a_queue_keeps_the_order_of_its_items(self) -> None:
        async def scenario() -> None:
            queue: asyncio.Queue[int] = asyncio.Queue(2)

            async def consumes() -> None:
                for _ in range(6):
                    self.notes.append(await queue.get())

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(consumes())
                for number in range(6):
                    await queue.put(number)

        self.run(scenario())
        assert self.notes == [0, 1, 2, 3, 4, 5]

    def test_a_timer_runs_in_the_context_of_its_creation(self) -> None:
        async def scenario() -> None:
            _context_value.set("first")
            asyncio.get_running_loop().call_later(STEP_S, lambda: self.notes.append(_context_value.get()))
            task = asyncio.create_task(self._note_after(0.0, "task"))
            _context_value.set("second")
            await task
            await asyncio.sleep(2 * STEP_S)

        self.run(scenario())
        assert self.notes == ["task", "first"]

    def test_a_failing_callback_is_reported_and_the_loop_continues(self) -> None:
        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, about: self.notes.append(str(about["exception"])))
            loop.call_soon(int, "no number")
            await self._note_after(STEP_S, "end")

        self.run(scenario())
        assert self.notes == ["invalid literal for int() with base 10: 'no number'", "end"]

    def test_open_generators_are_closed_when_the_loop_ends(self) -> None:
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
