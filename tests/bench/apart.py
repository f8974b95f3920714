"""Work in a process of its own: with only the needed data in memory, and with its own share of the machine."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SPAWN = multiprocessing.get_context("spawn")
_STOP_S = 10.0


def apart(work: Callable[..., T], *arguments: Any) -> T:
    """The result of `work` in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        return pool.submit(work, *arguments).result()


@contextmanager
def beside(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Run `work` in a process of its own during the context."""
    process = _SPAWN.Process(target=work, args=arguments, daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), f"{work.__name__} ended with {process.exitcode}; see above"
    finally:
        process.terminate()
        process.join(_STOP_S)


def pipe() -> tuple[Connection, Connection]:
    """A pipe: the receiving end for this process, and the sending end for a process beside it."""
    return _SPAWN.Pipe(duplex=False)


def counter() -> Any:
    """A number, in `value`, that this process shares with one beside it. Only one process may write it."""
    return _SPAWN.Value("q", 0, lock=False)


def numbers(count: int) -> Any:
    """Numbers that this process shares with one beside it."""
    return _SPAWN.Array("d", count, lock=False)


@contextmanager
def serving(*flags: str) -> Iterator[dict[str, str]]:
    """A ready `dpuplane serve`: its addresses by name (`api`, `http`, `agents`), and its `pid`."""
    listeners = ("--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--agents=127.0.0.1:0", "--log-level=ERROR")
    command = [str(Path(sys.executable).with_name("dpuplane")), "serve", *listeners, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:1] == ["ready"], "serve did not start; see above"
        yield {**dict(part.split("=", 1) for part in ready[1:]), "pid": str(process.pid)}
    finally:
        process.terminate()
        process.wait(_STOP_S)
