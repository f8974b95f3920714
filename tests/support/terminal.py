"""A terminal that runs a document's commands verbatim, in a folder of its own.

Long-running processes (serve, kafka) stay running; the terminal waits until they are ready, as a reader would. A
document names ports of its reader's machine. Here every process takes free ports, and later lines are rewritten to use
them. A new process on an embedded log replaces the one before.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.support.planes import READY_TIMEOUT_S, Process, Ran, started

BIN = str(Path(sys.executable).parent)
STAYS = ("serve", "kafka", "simulator", "agent")
FREE = {f"DPUPLANE_{name}": "127.0.0.1:0" for name in ("LISTEN", "HTTP", "AGENTS")}
_DEFAULTS = {"api": "127.0.0.1:7080", "http": "127.0.0.1:7081", "agents": "127.0.0.1:7082"}
_BROKERS = re.compile(r"HOST:PORT(,HOST:PORT)*(,\.\.\.)?")
_VARIABLE = re.compile(r"^(?:export )?([A-Z_]+)=(.*)$")


class Terminal:
    """Runs lines, one after the other."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._variables: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._brokers = ""
        self._plane: Process | None = None

    async def type(self, line: str) -> Ran:
        """Run one line to its end, or until its process is ready."""
        line = self._here(line)
        words = shlex.split(line, comments=True)
        if words[:1] == ["dpuplane"] and words[1:2] and words[1] in STAYS:
            return await self._start(words[1:])
        if words[:1] == ["unset"]:
            for name in words[1:]:
                del self._variables[name]
            return Ran(0, "", "")
        if _VARIABLE.match(line):
            return await self._set(line)
        return await self._run(f"set -e; {line}")

    def _here(self, line: str) -> str:
        """The line with its addresses replaced by those on this machine."""
        line = _BROKERS.sub(self._brokers or "HOST:PORT", line)
        for name, default in _DEFAULTS.items():
            line = line.replace(default, self._places.get(name, default))
        return line

    async def _start(self, words: Sequence[str]) -> Ran:
        if words[0] == "serve" and "--kafka" not in words and self._plane is not None:
            await self._plane.stop()
        more = [] if words[0] == "kafka" else ["--name", f"p{len(self._places)}"] if "--kafka" in words else []
        process = await self._stack.enter_async_context(
            started(*words, *more, program=self._program(), stderr=self._folder / "stderr")
        )
        if words[0] == "kafka":
            self._brokers = process.ready.split()[1]
        elif words[0] == "serve":
            self._plane = process
            fields = dict(part.split("=", 1) for part in process.ready.split()[1:])
            self._places = {**fields, **self._places} if "--kafka" in words else fields
        return Ran(0, process.ready, "")

    def _program(self) -> Sequence[str]:
        environment = [f"{name}={value}" for name, value in (FREE | self._variables).items()]
        return ("env", f"--chdir={self._folder}", *environment, f"{BIN}/dpuplane")

    async def _set(self, line: str) -> Ran:
        names = re.findall(r"(?:^|\s)([A-Z_]+)=", line)
        shown = " ".join(f'"${name}"' for name in names)
        ran = await self._run(f"set -e; {line}\nprintf '%s\\0' {shown}")
        self._variables.update(zip(names, ran.stdout.split("\0"), strict=False))
        return ran

    async def _run(self, script: str) -> Ran:
        api = {"DPUPLANE_SERVER": self._places["api"]} if "api" in self._places else {}
        api["DPUPLANE_CLIENT_CONFIG"] = str(self._folder / "contexts.yaml")
        child = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self._folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **api, **self._variables, "PATH": f"{BIN}:{os.environ['PATH']}"},
        )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                stdout, stderr = await child.communicate()
        except TimeoutError:
            child.kill()
            raise AssertionError(f"no end after {READY_TIMEOUT_S:.0f} s: {script}") from None
        assert child.returncode is not None
        return Ran(child.returncode, stdout.decode(), stderr.decode())


@asynccontextmanager
async def terminal(folder: Path) -> AsyncIterator[Terminal]:
    """A terminal in an empty folder; its processes are stopped on exit."""
    async with AsyncExitStack() as stack:
        yield Terminal(folder, stack)
