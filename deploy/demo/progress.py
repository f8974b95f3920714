"""What the demo shows while it runs: bars on a terminal, lines with counts elsewhere. Always on stderr."""

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
"""Elsewhere than on a terminal, a line of a step under way at most this often."""


class ProgressStep:
    """One thing under way. `advance` by what got done, or `set` to how much is."""

    def __init__(self, say: Callable[[int], None]) -> None:
        self._say = say
        self._done = 0

    def advance(self, done: int = 1) -> None:
        self.set(self._done + done)

    def set(self, done: int) -> None:
        self._done = done
        self._say(done)


class Display:
    """Steps one after the other, each with its own bar, which stays."""

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
        """A step of `total` parts. Elsewhere than on a terminal: lines when it starts, now and then, at its end."""
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
    """One step in lines of text."""

    def __init__(self, what: str, total: int, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._what, self._total, self._clock, self._say = what, total, clock, say
        self._began = self._said = clock()
        self._say(f"{what} ({total:,})")

    def show(self, done: int) -> None:
        now = self._clock()
        if now - self._said >= LINE_S:
            self._said = now
            self._say(f"{self._what}: {done:,} of {self._total:,} after {now - self._began:.0f} s")

    def end(self) -> None:
        self._say(f"{self._what}: {self._total:,} of {self._total:,} after {self._clock() - self._began:.1f} s")
