"""A TCP proxy with faults of single connections: it loses responses, delays data, or sends it byte by byte.

The proxy does not parse the bytes. Its mode can change at any moment, and applies to open connections too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Mode = Literal["pass", "lose answers", "delay", "byte by byte", "half-open"]
CHUNK = 65_536
DELAY_S = 2.0
SINGLE_BYTES_MAX = 400
"""The maximum number of single bytes per chunk. The rest follows at once; otherwise no transfer would end in time."""


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

    def set_mode(self, mode: Mode) -> None:
        """Set the mode. Leaving a mode that lost data closes the connections, as TCP would."""
        if self.mode in ("lose answers", "half-open"):
            self._drop_all()
        self.mode = mode
        self._changed.set()
        self._changed = asyncio.Event()

    def _drop_all(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, client_reader: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._open.add(answer)
        try:
            target_reader, ask = await asyncio.open_connection(*self._target)
        except OSError:
            self._open.discard(answer)
            answer.transport.abort()
            return
        self._open.add(ask)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(client_reader, ask, is_answer=False))
                tasks.create_task(self._pump(target_reader, answer, is_answer=True))
        except* (OSError, EOFError):
            pass  # one side ended, so close the other
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
            elif mode == "byte by byte":
                data = await self._write_single_bytes(data, sink)
            sink.write(data)
            await sink.drain()
        raise EOFError

    async def _write_single_bytes(self, data: bytes, sink: asyncio.StreamWriter) -> bytes:
        """Write the first bytes in single packets; returns the rest."""
        for place in range(min(len(data), SINGLE_BYTES_MAX)):
            sink.write(data[place : place + 1])
            await sink.drain()
            await asyncio.sleep(0)
            self.counts["byte by byte"] += 1
        return data[SINGLE_BYTES_MAX:]

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


@asynccontextmanager
async def proxied(listen: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[Proxy]:
    """Run a proxy during the context."""
    async with Proxy(listen, target).running() as proxy:
        yield proxy
