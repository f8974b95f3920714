"""Progress of the demo on stderr: bars on a terminal, lines with counts elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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

LINE_S = 5.0
"""Minimum time between two lines of a running step, without a terminal."""


class ProgressStep:
    """The progress of one step: `advance` adds to the count, `set` replaces it."""

    def __init__(self, say: Callable[[int], None]) -> None:
        self._say = say
        self._done = 0

    def advance(self, done: int = 1) -> None:
        self.set(self._done + done)

    def set(self, done: int) -> None:
        self._done = done
        self._say(done)


class Display:
    """Displays consecutive steps, each with its own bar, which remains on the screen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
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
    def step(self, what: str, total: int) -> Iterator[ProgressStep]:
        """Show a step of `total` parts. Without a terminal: lines at its start, at intervals, and at its end."""
        if self._console.is_terminal:
            task = self._bars.add_task(what, total=total)
            yield ProgressStep(lambda done: self._advance(task, done))
            self._advance(task, total)
            return
        lines = _Lines(what, total, self._clock, lambda text: self._console.out(text, highlight=False))
        yield ProgressStep(lines.show)
        lines.end()

    def _advance(self, task: TaskID, done: int) -> None:
        self._bars.update(task, completed=done)


class _Lines:
    """One step as lines of text."""

    def __init__(self, what: str, total: int, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._what, self._total, self._clock, self._say = what, total, clock, say
        self._began = self._printed_s = clock()
        self._say(f"{what} ({total:,})")

    def show(self, done: int) -> None:
        now = self._clock()
        if now - self._printed_s >= LINE_S:
            self._printed_s = now
            self._say(f"{self._what}: {done:,} of {self._total:,} after {now - self._began:.0f} s")

    def end(self) -> None:
        self._say(f"{self._what}: {self._total:,} of {self._total:,} after {self._clock() - self._began:.1f} s")
