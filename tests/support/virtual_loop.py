"""The virtual clock: a deterministic event loop that advances its clock instead of sleeping. It knows the process of
every task.

An async test marked `virtual_clock` runs on this loop, from time 0, so an hour of timers takes only the time of its
work. Tests that need several loops, as state machines do, call `run_virtual`. A loop on which every task waits and no
timer is set raises `Stalled` instead of hanging.

Two runs of one seed must agree byte for byte, in any process. Memory addresses of objects could make them differ: sets
of tasks and futures are iterated in order of their hashes (a TaskGroup cancels its children so). Here hashes are
consecutive numbers instead. The loop never polls for I/O, and runs the work of executors at once. It stops a run that
loops for ever without time advancing.

Callbacks due at one instant run in the order in which they were scheduled, as on every asyncio loop. With a random
generator, the loop draws the order of ready tasks. Only tasks are reordered: of two messages, the one sent first still
arrives first.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.memory_transport import Listener, MemoryTransport, connect

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")

TURNS_MAX = 200_000
"""The limit of turns of the loop at one instant. A run beyond it loops for ever."""

LIVING_MIN = 500
"""The number of remembered tasks above which finished tasks are dropped."""

_owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="world")


class Stalled(Exception):
    """Every task waits, and no timer is scheduled that could wake one."""


class _Task(asyncio.Task[Any]):
    """A task with a number as its hash, and the name of the process that created it."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
        return self._number


class _Future(asyncio.Future[Any]):
    """A future with a number as its hash, assigned at first use."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
        return self._number


class _Handle:
    """A callback that is or will be due: the part of asyncio's handles that asyncio itself uses."""

    __slots__ = ("_args", "_callback", "_context", "_is_cancelled", "_when")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None, when: float
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        self._is_cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self._is_cancelled

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` is the number of virtual seconds since the loop's start."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.listeners: dict[Path, Listener] = {}
        """What accepts connections at the paths of Unix sockets: there are no real sockets."""
        self.scheduler: random.Random | None = None
        """Draws which task goes on first; in the order in which they became ready if there is none."""
        self._now = 0.0
        self._turns_at_once = 0
        self._due: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self.next_number = itertools.count(1).__next__
        self._world = contextvars.copy_context()
        self._living: dict[_Task, str] = {}
        self._living_max = LIVING_MIN
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now

    def take(self, seconds: float) -> None:
        """Let the running task take so many seconds of virtual time; no other task runs meanwhile."""
        self._now += seconds

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def in_world(self, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that belongs to no process, whichever process created it: a request in flight outlives its sender."""
        return self.create_task(coro, name=name, context=self._world.copy())

    def tasks_of(self, owner: str) -> list[str]:
        """Names of the unfinished tasks of a process."""
        return [task.get_name() for task, whose in self._living.items() if whose == owner and not task.done()]

    # --- what asyncio asks of a loop

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, self._now)
        self._due.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, when)
        heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        """The simulation has one thread; an interrupt arrives in it too."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run the function at once: work in a thread takes no virtual time, and the clock would advance without it."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: Path, **_: Any
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        """Connect to a listener of this loop."""
        listener = self.listeners.get(path)
        if listener is None:
            raise FileNotFoundError(f"nothing listens at {path}")
        await asyncio.sleep(listener.latency_s())
        protocol = protocol_factory()
        return connect(listener, protocol), protocol

    def _run_once(self) -> None:
        """Run all iterations until the loop is stopped: no I/O needs a poll between two of them."""
        due, timers = self._due, self._timers
        while not self._stopping:
            if not due:
                self._move_clock()
            elif self._turns_at_once >= TURNS_MAX:
                raise Stalled(f"the loop turned {TURNS_MAX} times at {self._now} s")
            self._turns_at_once += 1
            while timers and timers[0][0] <= self._now:
                due.append(heappop(timers)[2])
            if self.scheduler is not None and len(due) > 1:
                self._reorder(self.scheduler)
            for _ in range(len(due)):
                handle = due.popleft()
                if not handle._is_cancelled:
                    self._run(handle)

    def _move_clock(self) -> None:
        """Advance the clock to the next due callback."""
        timers = self._timers
        while timers and timers[0][2]._is_cancelled:
            heappop(timers)
        if not timers:
            raise Stalled("every task waits, and no timer is set")
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._turns_at_once = 0

    def _run(self, handle: _Handle) -> None:
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"{handle._callback} raised", "exception": error})

    def _reorder(self, rng: random.Random) -> None:
        """Shuffle the ready tasks, and leave all other callbacks in place."""
        due = self._due
        places = [place for place, handle in enumerate(due) if _is_step(handle._callback)]
        if len(places) > 1:
            steps = [due[place] for place in places]
            rng.shuffle(steps)
            for place, step in zip(places, steps, strict=True):
                due[place] = step

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> _Task:
        if options.get("name") is None:
            options["name"] = getattr(coro, "__qualname__", "generator")
        context = options.get("context")
        task = _Task(coro, loop=loop, **options)
        if len(self._living) >= self._living_max:
            self._living = {task: whose for task, whose in self._living.items() if not task.done()}
            self._living_max = 2 * len(self._living) + LIVING_MIN
        self._living[task] = _owner.get() if context is None else context.get(_owner, "world")
        return task


def _is_step(callback: Any) -> bool:
    """Whether this callback is a step of a task."""
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


@contextmanager
def owned_by(owner: str) -> Iterator[None]:
    """Tasks created in this context, and by those tasks, belong to this process."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


def current_loop() -> VirtualLoop:
    """The running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "the test is not marked `virtual_clock`"
    return loop


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give a test with the marker a virtual loop, and every other test a loop of asyncio."""
    if item.get_closest_marker("virtual_clock"):
        return {"virtual": VirtualLoop}
    return {"asyncio": asyncio.new_event_loop}
