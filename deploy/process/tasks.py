"""The tasks of a process: its first failure and its end stop all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


class ProcessTasks:
    """The tasks of a process. The first failure cancels the other tasks and the body; the end of the body cancels all
    tasks.
    """

    async def __aenter__(self) -> ProcessTasks:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._started: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._started:
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)  # any other error of the body is raised unchanged
        try:
            await self._tasks.__aexit__(kind if cancelled else None, error if cancelled else None, at)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    def start(self, part: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(part)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
