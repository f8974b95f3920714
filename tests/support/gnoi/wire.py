"""A wire between an installer and a service that a test cuts or holds: all connections over it break, and new ones are
made; or nothing passes for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_BLOCK = 1 << 16


class Wire:
    """Relays connections to HOST:PORT. `address` is where it listens."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._passes = asyncio.Event()
        self._passes.set()

    def hold(self) -> None:
        """Let nothing pass until the release."""
        self._passes.clear()

    def release(self) -> None:
        self._passes.set()

    def cut(self) -> None:
        """Break all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until an end closes it."""
        host, _, port = self._target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_relay(reader, far_writer, self._passes))
                tasks.create_task(_relay(far_reader, writer, self._passes))
        finally:
            self._writers -= {writer, far_writer}
            for each in (writer, far_writer):
                each.transport.abort()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            await passes.wait()
            writer.write(block)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def breakable(target: str) -> AsyncIterator[Wire]:
    """A wire to HOST:PORT while the context lasts."""
    wire = Wire(target)
    server = await asyncio.start_server(wire.connect, "127.0.0.1", 0)
    try:
        wire.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire
    finally:
        server.close()
        wire.cut()
        await server.wait_closed()
