"""A proxy per connection, for faults of a single connection: responses that are lost, delayed, or sent byte by byte.

It passes bytes on without parsing them. Its mode can change at any moment, and applies to open connections too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Mode = Literal["pass", "lose answers", "delay", "crumbs", "half-open"]
CHUNK = 65_536
DELAY_S = 2.0
CRUMBS_MAX = 400
"""Single bytes of a chunk; the rest follows at once, or nothing would ever come to its end."""


class Proxy:
    """Listens at one address and dials another. `counts` is the number of affected connections, by mode."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.address = f"{listen[0]}:{listen[1]}"
        self.mode: Mode = "pass"
        self.counts: Counter[str] = Counter()
        self._listen = listen
        self._target = target
        self._changed = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, *self._listen)
        try:
            yield self
        finally:
            server.close()
            self._drop_all()

    def become(self, mode: Mode) -> None:
        """Set the mode from now on. Leaving a mode closes the connections that lost data in it, as TCP would."""
        if self.mode in ("lose answers", "half-open"):
            self._drop_all()
        self.mode = mode
        self._changed.set()
        self._changed = asyncio.Event()

    def _drop_all(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._open.add(answer)
        try:
            far, ask = await asyncio.open_connection(*self._target)
        except OSError:
            self._open.discard(answer)
            answer.transport.abort()
            return
        self._open.add(ask)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(near, ask, is_answer=False))
                tasks.create_task(self._pump(far, answer, is_answer=True))
        except* (OSError, EOFError):
            pass  # one side ended: close the other
        finally:
            for writer in (answer, ask):
                self._open.discard(writer)
                writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await source.read(CHUNK):
            mode = self.mode
            if mode == "half-open" or (mode == "lose answers" and is_answer):
                self.counts[mode] += 1
                continue
            if mode == "delay":
                self.counts[mode] += 1
                await self._wait(DELAY_S)
            elif mode == "crumbs":
                data = await self._crumbled(data, sink)
            sink.write(data)
            await sink.drain()
        raise EOFError

    async def _crumbled(self, data: bytes, sink: asyncio.StreamWriter) -> bytes:
        """Write the first bytes one by one, each in a packet of its own; the rest."""
        for place in range(min(len(data), CRUMBS_MAX)):
            sink.write(data[place : place + 1])
            await sink.drain()
            await asyncio.sleep(0)
            self.counts["crumbs"] += 1
        return data[CRUMBS_MAX:]

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


@asynccontextmanager
async def proxied(listen: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[Proxy]:
    """A running proxy."""
    async with Proxy(listen, target).running() as proxy:
        yield proxy
