"""A real HTTP server of files that breaks transfers as a test tells it: at any byte, with lies, slowly, or half-way
through a change of the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from aiohttp import web

_PIECE = 16 * 1024


@dataclass
class ServedFile:
    """A file, and how its server misbehaves. `breaks` are the bytes that each of the next responses sends before it
    breaks the connection; a later response is complete."""

    content: bytes
    breaks: list[int] = field(default_factory=list)
    status: int = 200
    sends_etag: bool = True
    honors_ranges: bool = True
    honors_if_range: bool = True
    lies_about_size: int = 0
    """Added to the Content-Length."""
    stalls_after: int | None = None
    changes_to: bytes | None = None
    """The file becomes this one after the next response."""
    redirects_to: str = ""
    is_chunked: bool = False

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


class ImageServer:
    """Serves files by name. `requests` are the Range headers of the requests, by name."""

    def __init__(self) -> None:
        self.files: dict[str, ServedFile] = {}
        self.requests: list[tuple[str, str]] = []
        self.base = ""
        self.sent_bytes = 0

    def url(self, name: str) -> str:
        return f"{self.base}/{name}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        asked = request.headers.get("Range", "")
        self.requests.append((name, asked))
        file = self.files.get(name)
        if file is None or file.status != 200:
            return web.Response(status=404 if file is None else file.status)
        if file.redirects_to:
            return web.Response(status=302, headers={"Location": file.redirects_to})
        offset = self._offset(file, request) if asked else 0
        response = web.StreamResponse(status=206 if offset else 200)
        if file.sends_etag:
            response.headers["ETag"] = file.etag
        size = len(file.content)
        if offset:
            response.headers["Content-Range"] = f"bytes {offset}-{size - 1}/{size}"
        if file.is_chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = size - offset + file.lies_about_size
        await response.prepare(request)
        await self._send(request, response, file, file.content[offset:])
        return response

    def _offset(self, file: ServedFile, request: web.Request) -> int:
        if not file.honors_ranges:
            return 0
        if file.honors_if_range and request.headers.get("If-Range") not in (None, file.etag):
            return 0
        return int(request.headers["Range"].removeprefix("bytes=").partition("-")[0])

    async def _send(self, request: web.Request, response: web.StreamResponse, file: ServedFile, content: bytes) -> None:
        limit = file.breaks.pop(0) if file.breaks else None
        if file.changes_to is not None:
            file.content, file.changes_to = file.changes_to, None
        sent = 0
        while sent < len(content):
            end = min(len(content), sent + _PIECE, *(each for each in (limit, file.stalls_after) if each is not None))
            await response.write(content[sent:end])
            self.sent_bytes += end - sent
            sent = end
            if sent == limit:
                assert request.transport is not None
                await asyncio.sleep(0.01)  # what was written reaches the client before the connection breaks
                request.transport.abort()
                return
            if sent == file.stalls_after:
                await asyncio.sleep(3600)
        if file.lies_about_size > 0:
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write_eof()


@asynccontextmanager
async def image_server(context: ssl.SSLContext | None = None) -> AsyncIterator[ImageServer]:
    """A server on the loopback interface."""
    server = ImageServer()
    app = web.Application()
    app.router.add_get("/{name}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    server.base = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def content_of(size: int, seed: int = 0) -> bytes:
    """Random bytes."""
    return Random(seed).randbytes(size)
