"""Real processes of the plane, started from the command line, and commands run against them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

DPUPLANE = str(Path(sys.executable).parent / "dpuplane")
READY_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0


class Ran(NamedTuple):
    """The result of a command of the command line."""

    status: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        return json.loads(self.stdout)


class Process:
    """A `dpuplane serve` (or another command with a ready line) in the background."""

    def __init__(self, child: asyncio.subprocess.Process, ready: str) -> None:
        self.child = child
        self.ready = ready

    def address(self, name: str) -> str:
        """The address of `api`, `http` or `agents`, from the ready line."""
        fields = dict(part.split("=", 1) for part in self.ready.split()[1:])
        return fields[name]

    def kill(self) -> None:
        """Send SIGKILL."""
        self.child.send_signal(signal.SIGKILL)

    async def stop(self) -> int:
        """Send SIGTERM; the exit status."""
        if self.child.returncode is None:
            self.child.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(END_TIMEOUT_S):
            return await self.child.wait()


@asynccontextmanager
async def started(
    *arguments: str, stderr: Path | None = None, program: Sequence[str] = (DPUPLANE,)
) -> AsyncIterator[Process]:
    """A process that has printed its ready line; it is killed on exit if it still runs."""
    errors = stderr.open("ab") if stderr else asyncio.subprocess.DEVNULL
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*program, *arguments, stdout=pipe, stderr=errors)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            line = (await child.stdout.readline()).decode().strip()
        assert line.startswith("ready"), f"no ready line but {line!r}; exit status {child.returncode}"
        yield Process(child, line)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def serving(*arguments: str, stderr: Path | None = None, program: Sequence[str] = (DPUPLANE,)) -> Any:
    """A `dpuplane serve` on free ports."""
    ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--agents", "127.0.0.1:0")
    return started("serve", *ports, *arguments, stderr=stderr, program=program)


async def run(
    *arguments: str,
    server: str = "",
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = (DPUPLANE,),
    timeout_s: float = READY_TIMEOUT_S,
) -> Ran:
    """Run one command to its end."""
    child = await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DPUPLANE_SERVER": server or "127.0.0.1:9", **(environment or {})},
    )
    async with asyncio.timeout(timeout_s):
        stdout, stderr = await child.communicate()
    assert child.returncode is not None
    return Ran(child.returncode, stdout.decode(), stderr.decode())
