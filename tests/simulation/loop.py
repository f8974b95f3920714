"""A virtual-time loop that runs the same every time, and knows whose every task is.

Two runs of one seed must agree byte for byte, in any process. What could tell them apart is where objects lie in
memory: sets of tasks and futures are walked in order of their hashes (a TaskGroup cancels its children so). Here hashes
count up instead. Nothing touches the operating system, and a loop that turns for ever without time moving is stopped.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.virtual_loop import Stalled

T = TypeVar("T")

TURNS_MAX = 200_000
"""Turns of the loop at one instant, beyond which somebody spins."""

_owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="world")


class _Task(asyncio.Task[Any]):
    """A task with a number for a hash, and the name of the process in which it was made."""

    def __init__(self, coro: Any, *, number: int, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        self._number = number
        context = options.get("context")
        self.owner = _owner.get() if context is None else context.get(_owner, "world")
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """A future with a number for a hash."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Clock(selectors.SelectSelector):
    """Waits by moving the clock, and never asks the operating system."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        self.turns_at_once = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        self.turns_at_once += 1
        if timeout is None:
            raise Stalled("every task waits, and no timer is set")
        if timeout > 0:
            self.now += timeout
            self.turns_at_once = 0
        elif self.turns_at_once > TURNS_MAX:
            raise Stalled(f"the loop turned {TURNS_MAX} times at {self.now} s")
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Virtual seconds since its start are `time()`."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self._numbers = itertools.count(1)
        self._world = contextvars.copy_context()
        self._tasks: dict[_Task, None] = {}
        super().__init__(self.clock)
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self.clock.now

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(number=next(self._numbers), loop=self)

    def in_world(self, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that belongs to no process, whoever asks for it: a request on its way outlives who sent it."""
        return self.create_task(coro, name=name, context=self._world.copy())

    def tasks_of(self, owner: str) -> list[str]:
        """Names of the unfinished tasks that were made within a process."""
        return [task.get_name() for task in self._tasks if task.owner == owner and not task.done()]

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _Task:
        number = next(self._numbers)
        options.setdefault("name", f"task-{number}")
        task = _Task(coro, number=number, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(task, None))
        return task


@contextmanager
def owned_by(owner: str) -> Iterator[None]:
    """Whatever tasks are made within, and by those, belong to this process."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def current_loop() -> SimulatedLoop:
    """The running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop), "simulations run on their own loop"
    return loop


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on a fresh simulated loop."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
