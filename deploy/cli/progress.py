"""How far something long has come, on stderr while somebody watches it: a terminal, and longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import click

FIRST_S = 1.0
EVERY_S = 0.2


class ProgressLine:
    """One line that is written over, with what is left of the time; nothing at all in a script."""

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
        """So much is done, of nobody knows how much."""
        if self._is_due():
            click.echo(f"\r\x1b[K{self._what}: {what}", err=True, nl=False)

    def show(self, what: str, share: float) -> None:
        """So much, from 0 to 1, is done, and this is next."""
        if not self._is_due():
            return
        left_s = (self._shown_s - self._began_s) * (1 - share) / share if share > 0 else 0.0
        click.echo(f"\r\x1b[K{self._what}: {share:.0%}, {what}, {left_s:.0f} s left", err=True, nl=False)

    def _is_due(self) -> bool:
        """Whether to show something now; the caller does then."""
        now_s = time.monotonic()
        if not self._shows or now_s - self._began_s < FIRST_S or now_s - self._shown_s < EVERY_S:
            return False
        self._shown_s, self._has_shown = now_s, True
        return True
