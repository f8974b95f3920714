"""Transfers of images to simulated devices, over the real URLs that real devices get.

A simulated device keeps nothing of what it receives. It checks what a real one would notice: that the transfer is
complete, has the digest that the server states, and is a boot stream followed by a configuration.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from collections.abc import Callable

import aiohttp

from drivers.backends.simulated_bmc import Transfer

_CONFIGURATION = b"bfb_modify_os()"
_AT_ONCE = 32
"""Maximum number of concurrent transfers; further ones wait, as devices behind a slow network do."""
_READ_S = 60.0
_TAIL_BYTES = 256 * 1024


CONNECTS_MAX = 30
"""Maximum number of connects of one transfer. A server limits its connections, and those of one address."""
CONNECT_PAUSE_S = 1.0
_BUSY = "image: the server returned HTTP status 503"


class Received:
    """A transfer, running or ended. `fault` says why it failed."""

    def __init__(self) -> None:
        self.is_done = False
        self.fault = ""


class ImageTransfers:
    """Runs transfers until `run` is cancelled. `completed` counts complete and correct ones, `received_bytes` bytes."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self.completed = 0
        self.received_bytes = 0
        self._context = context
        self._wanted: asyncio.Queue[tuple[str, Received]] = asyncio.Queue()

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=_READ_S)
        connector = aiohttp.TCPConnector(limit=_AT_ONCE)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(self._serve(session))

    def begin(self, url: str) -> Transfer:
        """Begin the transfer from a URL."""
        received = Received()
        self._wanted.put_nowait((url, received))
        return received

    async def _serve(self, session: aiohttp.ClientSession) -> None:
        while True:
            url, received = await self._wanted.get()
            received.fault = await self._received(session, url)
            received.is_done = True
            self.completed += not received.fault

    async def _received(self, session: aiohttp.ClientSession, url: str) -> str:
        """Receive the image, and connect again while the server is busy. Returns what is wrong; empty if nothing is."""
        for connect in range(1, CONNECTS_MAX + 1):
            try:
                fault = await self._fault(session, url)
                if fault != _BUSY:
                    return fault
            except aiohttp.ClientConnectorError as error:
                fault = _failed(error)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                return _failed(error)
            if connect < CONNECTS_MAX:
                await asyncio.sleep(CONNECT_PAUSE_S)
        return fault

    async def _fault(self, session: aiohttp.ClientSession, url: str) -> str:
        """Receive the image. Returns what is wrong with it; empty if nothing is."""
        found, tail, begin = hashlib.sha256(), b"", b""
        async with session.get(url, ssl=self._context(), allow_redirects=False) as response:
            if response.status != 200:
                return f"image: the server returned HTTP status {response.status}"
            async for data in response.content.iter_any():
                begin = begin or data[:4]
                found.update(data)
                tail = (tail + data)[-_TAIL_BYTES:]
                self.received_bytes += len(data)
            stated = response.headers.get("Repr-Digest", "")
        digest = base64.b64encode(found.digest()).decode()
        if stated != f"sha-256=:{digest}:":
            return "image: the digest is not the one that the server states"
        if begin == b"Bf\x02\x13" and _CONFIGURATION not in tail:
            return "image: no configuration follows the image"
        return ""


def _failed(error: Exception) -> str:
    return f"image: the transfer failed: {type(error).__name__}"  # the text of some errors has the URL
