"""Child processes of a process of the plane, for work outside its event loop and its memory.

A child gets its parameters as one line of JSON on standard input, and answers in lines of JSON on standard output. It
ends when its standard input closes, so it never outlives its parent, even if the parent is killed. Python's
`multiprocessing` is not used, because its child processes outlive a killed parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

from pydantic import BaseModel

NICE = 10
"""The niceness of child processes. Callers wait for the parent, so the parent has priority."""

# -- the side of the parent


def start_child(module: str, order: BaseModel) -> subprocess.Popen[bytes]:
    """Run a module in a child process. asyncio's subprocesses are not used, because they fork: a fork copies the page
    tables of the folded state, which takes 10 ms per gigabyte."""
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(order.model_dump_json().encode() + b"\n")
    return process


async def answers_of(process: subprocess.Popen[bytes]) -> AsyncIterator[dict[str, object]]:
    """The answers of a child, until it ends."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, process.stdout)
    async for line in reader:
        yield json.loads(line)


# -- the side of the child


def order_line() -> bytes:
    """Read the line with the parameters of this process from standard input."""
    return sys.stdin.buffer.readline()


def say(line: Mapping[str, object]) -> None:
    """Send an answer to the parent."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def run_until_input_ends(work: Coroutine[Any, Any, None], *, grace_s: float = 0.0) -> None:
    """Do the work and exit. When standard input ends, the work is cancelled and may take `grace_s` to end cleanly."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def look() -> None:
        if not os.read(0, 1):
            ended.set()

    loop.add_reader(0, look)
    working = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(ended.wait())
    await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(0)
    if working.done():
        working.result()
    elif grace_s:
        working.cancel()
        await asyncio.wait({working}, timeout=grace_s)
    os._exit(0)  # freeing a million rows takes seconds
