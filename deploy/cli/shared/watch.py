"""`--watch`: prints the output of a list or show command again whenever it has changed, until Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import click
import grpc

from deploy.cli.shared.client import Client, OpenStream
from deploy.cli.shared.errors import NotFoundError, Unreachable
from deploy.cli.shared.output import check_stdout_reader
from schemas.api import dpuplane_pb2 as pb

EVERY_S = 1.0
"""Interval of queries while no stream of positions is open."""
_PAUSE_S = 0.2
"""Minimum time between two queries: a busy plane advances all the time."""
_CLEAR = "\x1b[H\x1b[2J"
_POSITION = re.compile(r"\s*\"?position\"?: .*?(,|$|\})", re.MULTILINE)
"""The position in the output. Comparisons omit it, because it changes with every record."""


class Advances:
    """Tells when the folds of the plane have advanced, by a stream of positions, so that a command need not poll."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stream: OpenStream | None = None
        self._advanced = threading.Event()

    def begin(self) -> None:
        """Open the stream, unless one is open. An advance after this call ends the next `wait`."""
        self._advanced.clear()
        if self._stream is not None:
            return
        with contextlib.suppress(grpc.RpcError, click.ClickException):  # the query that follows tells why
            stream = self._client.open_stream("Watch", pb.WatchRequest())
            stream.next()
            self._stream = stream
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def wait(self, pause: Callable[[float], object], most_s: float = float("inf")) -> None:
        """Return after an advance, or after `most_s`. `pause` waits for the given seconds, or raises."""
        if self._stream is None:
            pause(min(EVERY_S, most_s))
            return
        pause(min(_PAUSE_S, most_s))
        waited_s = _PAUSE_S
        while not self._advanced.is_set() and waited_s < most_s:
            pause(_PAUSE_S)
            waited_s += _PAUSE_S

    def _read(self, stream: OpenStream) -> None:
        with contextlib.suppress(grpc.RpcError):
            while stream.next() is not None:
                self._advanced.set()
        self._stream = None
        self._advanced.set()


def watch(client: Client, show: Callable[[], None]) -> NoReturn:
    """Print until Ctrl-C, which ends every command with exit status 130. On a terminal new text replaces the old;
    elsewhere it is appended.

    Each response is at least as new as the one before, from any server. The command waits for a plane that does not
    respond.
    """
    shown = None
    advances = Advances(client)
    while True:
        advances.begin()
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
        advances.wait(check_stdout_reader)


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
