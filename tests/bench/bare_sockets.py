"""A bare uvloop program on as many sockets: it writes the same bytes to each, and reads a response from each.

It measures the share of the kernel, TLS and the loop in a change's way to many agents, without code of the plane: no
message is decoded, no table changes, nothing is stored. Its processes are laid out as those of the relay and the
agents.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from deploy.tls.certificates import Certificates
from drivers.relays.latency import LatencyHistogram
from tests.bench.apart import beside
from tests.bench.cert_files import CertFiles
from tests.bench.planes import PATIENCE_S

FRAME, ANSWER = bytes(64), bytes(40)
"""The lengths of a frame of one change and of its acknowledgement, as WebSocket frames."""
HOST = "127.0.0.1"
CONNECTING_AT_ONCE = 100


def round_trips(sockets: int, rounds: int, ours: CertFiles | None, theirs: CertFiles | None) -> LatencyHistogram:
    """The time from the start of a round, in which each socket is written to, to each socket's response."""
    return uvloop.run(_round_trips(sockets, rounds, ours, theirs))


async def _round_trips(sockets: int, rounds: int, ours: CertFiles | None, theirs: CertFiles | None) -> LatencyHistogram:
    fan, latency = _Fan(), LatencyHistogram()
    context = Certificates(*ours).server_context() if ours else None
    server = await asyncio.get_running_loop().create_server(lambda: _Writer(fan), HOST, 0, ssl=context, backlog=4096)
    with beside(_run_answering, server.sockets[0].getsockname()[1], sockets, theirs):
        async with asyncio.timeout(PATIENCE_S):
            await fan.answered(sockets)  # each reports that it is connected
            for _ in range(rounds):
                began = time.perf_counter()
                for writer in fan.writers:
                    writer.transport.write(FRAME)
                for answered in await fan.answered(sockets):
                    latency.add(round((answered - began) * 1e3))
    return latency


class _Fan:
    """All sockets to write to, and the times of their responses in one round."""

    def __init__(self) -> None:
        self.writers: list[_Writer] = []
        self.times: list[float] = []
        self._more = asyncio.Event()

    def answer(self) -> None:
        self.times.append(time.perf_counter())
        self._more.set()

    async def answered(self, sockets: int) -> list[float]:
        while len(self.times) < sockets:
            self._more.clear()
            await self._more.wait()
        times, self.times = self.times, []
        return times


class _Writer(asyncio.Protocol):
    """One socket to write to."""

    def __init__(self, fan: _Fan) -> None:
        self._fan = fan
        self._received = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._fan.writers.append(self)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received >= len(ANSWER):
            self._received -= len(ANSWER)
            self._fan.answer()


class _Answerer(asyncio.Protocol):
    """One socket that announces itself, then responds to every message."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(ANSWER)

    def data_received(self, _data: bytes) -> None:
        self._transport.write(ANSWER)


def _run_answering(port: int, sockets: int, cert_files: CertFiles | None) -> None:
    uvloop.run(_answering(port, sockets, cert_files))


async def _answering(port: int, sockets: int, cert_files: CertFiles | None) -> None:
    loop = asyncio.get_running_loop()
    context = Certificates(*cert_files).client_context() if cert_files else None
    for _ in range(0, sockets, CONNECTING_AT_ONCE):
        connecting = [loop.create_connection(_Answerer, HOST, port, ssl=context) for _ in range(CONNECTING_AT_ONCE)]
        await asyncio.gather(*connecting)
    await asyncio.Event().wait()
