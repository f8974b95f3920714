"""A progress line on stderr, for a task of more than one second on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import click

FIRST_S = 1.0
EVERY_S = 0.2


class ProgressLine:
    """One line that is overwritten, with the remaining time. It is printed only if stderr is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shows = sys.stderr.isatty()
        self._began_s = self._shown_s = time.monotonic()
        self._has_shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._has_shown:
            click.echo("\r\x1b[K", err=True, nl=False)

    def count(self, what: str) -> None:
        """Show a count without a known total."""
        if self._is_due():
            click.echo(f"\r\x1b[K{self._what}: {what}", err=True, nl=False)

    def show(self, what: str, share: float) -> None:
        """Show the completed share, from 0 to 1, with `what` as its description."""
        if not self._is_due():
            return
        left_s = (self._shown_s - self._began_s) * (1 - share) / share if share > 0 else 0.0
        click.echo(f"\r\x1b[K{self._what}: {share:.0%}, {what}, {left_s:.0f} s left", err=True, nl=False)

    def _is_due(self) -> bool:
        """Whether it is time to print. If so, the caller must print: this call counts as a print."""
        now_s = time.monotonic()
        if not self._shows or now_s - self._began_s < FIRST_S or now_s - self._shown_s < EVERY_S:
            return False
        self._shown_s, self._has_shown = now_s, True
        return True
