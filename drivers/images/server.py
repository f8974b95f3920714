"""The HTTPS server of installations: files and configurations by token, also in ranges.

    GET /images/TOKEN/bfb/??FILE.bfb,bfcfg/NAME?/bfb-to-install    the image followed by the configuration
    GET /images/TOKEN/bfb/FILE.bfb                                 the image
    GET /images/TOKEN/bfb/bfcfg/NAME                               the configuration
    GET /images/TOKEN/bfb/seed/NAME.iso                            the configuration, as a medium for cloud-init
    GET /installations/DPU?image=IDENTITY    the image followed by the configuration, for the agent of the DPU's host

The first form is that of DPF's registry: a BMC fetches one file, and the installer in the image finds the configuration
behind it. An image that is booted from virtual media has its configuration on a second medium. The last form has no
token: the agent shows its certificate, and its connection is aborted when that expires or is revoked. A response is
sent as fast as the client reads. The number of concurrent responses is limited; a further request waits for its turn,
and is refused with status 503 if the wait is too long. Requests are not logged, since their paths have tokens.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from ssl import SSLContext
from typing import TypeAlias
from urllib.parse import unquote

from aiohttp import web

from drivers.images.file_blocks import ReadBlock, opened
from drivers.images.images import Images
from drivers.images.installations import FINAL_NAME, Content, Installations, Part
from drivers.images.offload import Offload
from drivers.wire.bounded_listener import BoundedListener, ConnectionLimits
from eventstore.errors import TransientError
from projections.zones.dpus.host_installs import CertifiedHost

logger = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 18
"""Largest size of a read from the disk, and of a write to a connection. TLS holds some copies of it."""
WRITE_S = 60.0
"""Time limit of a write: a client that reads nothing for this time is disconnected."""
WAIT_S = 30.0
"""Longest wait of a request for its turn; then it is refused with status 503."""
RETRY_AFTER_S = "10"
IDLE_S = 20.0
PARTS_MAX = 4
CONNECTIONS = ConnectionLimits(most=500, per_address=125)

HostOf: TypeAlias = Callable[[web.Request], AbstractContextManager[CertifiedHost | None]]
"""The host whose agent makes a request, by its certificate; None for everybody else. While the context lasts, the
connection is aborted when the certificate is no longer valid."""

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def no_host(request: web.Request) -> AbstractContextManager[CertifiedHost | None]:
    """The agents that a server without certificates of clients knows."""
    return nullcontext()


class ImageServer:
    """Serves from `start` to `stop`. `responses` counts responses by status, `sent_bytes` the bytes of bodies, and
    `streams` the responses that are being sent."""

    def __init__(
        self,
        listen: tuple[str, int],
        installations: Installations,
        images: Images,
        offload: Offload,
        *,
        ssl: SSLContext | None,
        streams_at_once: int,
        limits: ConnectionLimits = CONNECTIONS,
        host_of: HostOf = no_host,
    ) -> None:
        self.responses: Counter[int] = Counter()
        self.sent_bytes = 0
        self.streams = 0
        self._installations = installations
        self._images = images
        self._offload = offload
        self._host_of = host_of
        self._slots = asyncio.Semaphore(streams_at_once)
        self._serves: set[tuple[CertifiedHost, str]] = set()
        """The host and the DPU of each download by an agent of a host."""
        app = web.Application(middlewares=[self._counted], client_max_size=0)
        app.router.add_get("/images/{token}/bfb/{path:.*}", self._get)
        app.router.add_get("/installations/{dpu}", self._get_for_host, allow_head=False)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S, handler_cancellation=True
        )
        self.listener = BoundedListener(self._connection, *listen, limits=limits, ssl=ssl)

    async def start(self) -> tuple[str, int]:
        """Start to listen; returns the bound address. Raises OSError."""
        await self._runner.setup()
        host, port = await self.listener.start()
        return host, port

    async def stop(self) -> None:
        self.listener.stop()
        await self._runner.cleanup()

    def _connection(self) -> asyncio.BaseProtocol:
        assert self._runner.server is not None
        return self._runner.server()

    @web.middleware
    async def _counted(self, request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            self.responses[error.status] += 1
            raise
        self.responses[response.status] += 1
        return response

    async def _get(self, request: web.Request) -> web.StreamResponse:
        names = _names(request)
        try:
            content = await self._installations.content(request.match_info["token"], names) if names else None
        except TransientError:
            return _busy()
        if content is None:
            return web.Response(status=404)  # a forged token and an unknown file look the same
        async with self._slot() as has_slot:
            return await self._respond(request, content) if has_slot else _busy()

    async def _get_for_host(self, request: web.Request) -> web.StreamResponse:
        with self._host_of(request) as host:
            return web.Response(status=404) if host is None else await self._send_to_host(request, host)

    async def _send_to_host(self, request: web.Request, host: CertifiedHost) -> web.StreamResponse:
        """Send an image to the agent of a host. It has one download of each DPU at a time, and its place before the
        content is made, because each content has a new token to join the cluster."""
        dpu, image = request.match_info["dpu"], request.query.get("image", "")
        if (host, dpu) in self._serves:
            return _busy()
        self._serves.add((host, dpu))
        try:
            async with self._slot() as has_slot:
                if not has_slot:
                    return _busy()
                try:
                    content = await self._installations.host_content(host, dpu, image)
                except TransientError:
                    return _busy()
                return web.Response(status=404) if content is None else await self._respond(request, content)
        finally:
            self._serves.discard((host, dpu))

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[bool]:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._slots.acquire()
        except TimeoutError:
            yield False
            return
        self.streams += 1
        try:
            yield True
        finally:
            self.streams -= 1
            self._slots.release()

    async def _respond(self, request: web.Request, content: Content) -> web.StreamResponse:
        size, etag = content.size, f'"{content.sha256.hex()}"'
        begin, end, status = _range(request, size, etag)
        headers = {"Accept-Ranges": "bytes", "Cache-Control": "no-store", "Content-Type": "application/octet-stream"}
        if content.sha256:
            headers |= {"ETag": etag, "Repr-Digest": content.digest_header}
        if status == 416:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
        if status == 206:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = end - begin
        await response.prepare(request)
        if request.method != "HEAD":
            await self._send(request, response, content, begin, end)
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, content: Content, begin: int, end: int
    ) -> None:
        at = 0
        for part in content.parts:
            first, last = max(begin - at, 0), min(end - at, part.size)
            at += part.size
            if first >= last:
                continue
            async with self._blocks(part) as read:
                while first < last:
                    data = await read(first, min(BLOCK_BYTES, last - first))
                    if not data:
                        logger.error("image cannot be read, downloading it again", extra={"file": str(part.path)})
                        self._images.lost_content(part.path.name if part.path is not None else "")
                        _disconnect(request)
                        return
                    try:
                        async with asyncio.timeout(WRITE_S):
                            await response.write(data)
                    except TimeoutError:
                        _disconnect(request)
                        return
                    self.sent_bytes += len(data)
                    first += len(data)
                    await asyncio.sleep(0)  # neither a cached read nor a write to a fast client lets others run
        await response.write_eof()

    @asynccontextmanager
    async def _blocks(self, part: Part) -> AsyncIterator[ReadBlock]:
        """Reads a part from an offset: so many bytes at most, and none if it cannot be read."""
        if part.path is None:

            async def slice_of(offset: int, count: int) -> bytes:
                return part.data[offset : offset + count]

            yield slice_of
            return
        async with opened(part.path, self._offload) as read:
            yield read


def _busy() -> web.Response:
    return web.Response(status=503, headers={"Retry-After": RETRY_AFTER_S})


def _disconnect(request: web.Request) -> None:
    """Break the connection, so that the client does not take what it has for the whole."""
    if request.transport is not None:
        request.transport.abort()


def _names(request: web.Request) -> list[str]:
    """The files that a request asks for: one in the path, or several in the query `??A,B?/NAME`."""
    query = request.rel_url.raw_query_string
    path = request.match_info["path"]
    if not query:
        return [path] if path else []
    if path or not query.startswith("?"):
        return []
    listed, _, rest = query[1:].partition("?")
    names = [unquote(name) for name in listed.split(",")]
    return names if rest in ("", f"/{FINAL_NAME}") and len(names) <= PARTS_MAX and all(names) else []


def _range(request: web.Request, size: int, etag: str) -> tuple[int, int, int]:
    """Begin, end and status of the range that a request asks for."""
    asked = request.headers.get("Range", "")
    found = _RANGE.fullmatch(asked.replace(" ", ""))
    if found is None or (not found[1] and not found[2]) or request.headers.get("If-Range", etag) != etag:
        return 0, size, 200  # several ranges in one request may be answered with the whole
    if not found[1]:
        begin, end = max(0, size - int(found[2])), size
    else:
        begin, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
    return (begin, end, 206) if begin < end else (0, 0, 416)
