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
"""The position changes with every record, even if nothing else in the output does."""


def watch(client: Client, show: Callable[[], None]) -> NoReturn:
    """Print until Ctrl-C, which ends every command with exit status 130. On a terminal new text replaces the old;
    elsewhere it is appended.

    Each response is at least as new as the one before, from any server. The command waits for a plane that does not
    respond.
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
    """Captured output. It has colours if it will be printed on a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _printed(show: Callable[[], None]) -> str:
    with contextlib.redirect_stdout(_Page(is_terminal=sys.stdout.isatty())) as printed:
        show()
    return printed.getvalue()
