"""CPU time of some tasks of this process, with the tasks that they start: it tells the parts that stand for devices
from the plane that they share a process with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class TaskCpu:
    """Counts the tasks of the coroutine functions `of`, but not those of `but`. `factory` makes the tasks of a loop."""

    def __init__(self, of: Collection[Callable[..., Any]], but: Collection[Callable[..., Any]] = ()) -> None:
        self.taken_s = 0.0
        self._of = {each.__qualname__ for each in of}
        self._but = {each.__qualname__ for each in but}
        self._is_counting = False

    def factory(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, _Result] | Generator[Any, None, _Result],
        /,
        **options: Any,
    ) -> asyncio.Task[_Result]:
        assert isinstance(coroutine, Coroutine), coroutine
        name = getattr(coroutine, "__qualname__", "")
        if name in self._of or (self._is_counting and name not in self._but):
            coroutine = _Counted(self, coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    def step(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run one step of a counted task."""
        self._is_counting, began_s = True, time.thread_time()
        try:
            return work(*arguments)
        finally:
            self._is_counting = False
            self.taken_s += time.thread_time() - began_s


class _Counted(Coroutine[Any, Any, Any]):
    def __init__(self, cpu: TaskCpu, inner: Coroutine[Any, Any, Any]) -> None:
        self._cpu = cpu
        self._inner = inner

    def send(self, value: Any, /) -> Any:
        return self._cpu.step(self._inner.send, value)

    def throw(self, kind: Any, value: BaseException | object = None, traceback: TracebackType | None = None, /) -> Any:
        return self._cpu.step(self._inner.throw, *(each for each in (kind, value, traceback) if each is not None))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()
