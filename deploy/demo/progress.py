"""What the demo shows while it runs: bars on a terminal, a line per step elsewhere. Always on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Step:
    """One thing under way. `advance` by what got done, or `set` to how much is."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, done: int = 1) -> None:
        self._bars.advance(self._task, done)

    def set(self, done: int) -> None:
        self._bars.update(self._task, completed=done)


class Display:
    """Steps one after the other, each with its own bar, which stays."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description:<46}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextmanager
    def step(self, what: str, total: int) -> Iterator[Step]:
        """A step of `total` parts; elsewhere than on a terminal, a line when it starts."""
        if not self._console.is_terminal:
            self._console.print(f"{what} ({total:,})", highlight=False)
        task = self._bars.add_task(what, total=total)
        yield Step(self._bars, task)
        self._bars.update(task, completed=total)
