"""`--watch`: prints the output of a list or show command again whenever it has changed, until Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from deploy.cli.client import Client
from deploy.cli.errors import NotFoundError, Unreachable
from deploy.cli.output import check_stdout_reader

EVERY_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"
_POSITION = re.compile(r"\s*\"?position\"?: .*?(,|$|\})", re.MULTILINE)
"""It moves with every record, also if nothing that is shown does."""


def watch(client: Client, show: Callable[[], None]) -> NoReturn:
    """Show until Ctrl-C, which ends it with 130 as it ends every command. On a terminal the new text takes the place of
    the old, elsewhere it follows below.

    Each answer is at least as new as the one before, whichever server gives it. A plane that is away is waited for.
    """
    shown = None
    while True:
        try:
            text = _printed(show)
        except (Unreachable, NotFoundError) as error:
            if shown is None:
                raise
            text = f"{error.message}\n"
        if shown is None or _POSITION.sub("", text) != _POSITION.sub("", shown):
            click.echo(f"{_CLEAR if sys.stdout.isatty() else ''}{text}", nl=False)
        shown = text
        client.advance_min_position()
        check_stdout_reader(EVERY_S)


class _Page(io.StringIO):
    """What is printed, for a terminal if that is where it will go: so it has colours or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _printed(show: Callable[[], None]) -> str:
    with contextlib.redirect_stdout(_Page(is_terminal=sys.stdout.isatty())) as printed:
        show()
    return printed.getvalue()
