"""The image of a DPU as the image store of the plane sends it to the agent of the host, by the agent's certificate."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, TypeAlias

import aiohttp

from deploy.host_agent.actions import ActionFailed

CONNECT_S = 10.0
READ_S = 60.0
"""Longest time without a byte of the image."""
RETRY_S_MAX = 120.0
"""Time for which an image store that cannot be reached, or is busy, is asked again."""
PAUSE_S = 2.0
CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_BUSY = 503


class Stream(NamedTuple):
    """An image that is being sent: its size, its SHA-256 digest, and its content."""

    size: int
    sha256: bytes
    chunks: AsyncIterator[bytes]


OpenImage: TypeAlias = Callable[[str], AbstractAsyncContextManager[Stream]]
"""Opens the image at a URL. It raises ActionFailed, and so do its chunks."""


def image_source(context: Callable[[], ssl.SSLContext] | None, *, retry_s_max: float = RETRY_S_MAX) -> OpenImage:
    """Opens images with the client certificate of the agent. Without a context, each image fails with the missing
    option."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Stream]:
        if context is None:
            raise ActionFailed("image: the image store gives images to an agent with a certificate; give --tls-cert")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            response = await _response(session, url, context, retry_s_max)
            try:
                yield _stream(response)
            finally:
                response.close()

    return opened


async def _response(
    session: aiohttp.ClientSession, url: str, context: Callable[[], ssl.SSLContext], retry_s_max: float
) -> aiohttp.ClientResponse:
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + retry_s_max
    while True:
        try:
            response = await session.get(url, ssl=context(), allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"cannot be reached: {type(error).__name__}: {error}"
        else:
            if response.status == 200:
                return response
            response.close()
            if response.status != _BUSY:
                raise ActionFailed(f"image: the image store answered with HTTP status {response.status}")
            reason = "is busy, or has not downloaded the image yet"
        if loop.time() > ends_s:
            raise ActionFailed(f"image: the image store {reason}")
        await asyncio.sleep(PAUSE_S)


def _stream(response: aiohttp.ClientResponse) -> Stream:
    found = _DIGEST.fullmatch(response.headers.get("Repr-Digest", ""))
    try:
        digest = base64.b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        digest = b""
    if not response.content_length or not digest:
        raise ActionFailed("image: the image store did not state the size and the digest of the image")
    return Stream(response.content_length, digest, _chunks(response))


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    count = 0
    try:
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            count += len(chunk)
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ActionFailed(
            f"image: the transfer broke off after {count} of {response.content_length} bytes: {type(error).__name__}"
        ) from error
