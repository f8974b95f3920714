"""An event loop on virtual time: to sleep it advances its clock, so an hour of timers takes only the time of its work.

Timers fire in order of their deadlines, and nothing else advances the clock, so a run depends only on its inputs. A
loop that would wait for ever, with nothing scheduled and no pending I/O, raises instead of hanging.

Tests call `run_virtual` and use no pytest marker for it: a marker gives one loop to a whole test, and the simulator and
the state machines of hypothesis open many loops within one test.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class Stalled(Exception):
    """Every task waits, and no timer is scheduled that could wake one."""


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: instead of waiting it advances the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Stalled("every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is the number of virtual seconds since the loop's start."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def take(self, seconds: float) -> None:
        """Let the running task take so many seconds of virtual time; no other task runs meanwhile."""
        self._jumping.now += seconds

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run the function at once: work in a thread takes no virtual time, and the clock would advance without it."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
