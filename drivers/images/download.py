"""One attempt to download a file, resumed where the last attempt ended.

The part that is there is verified again before the download goes on, since its hash is not stored. A server that has
another file now (by ETag, time or size) makes the download begin anew. Every read has a time limit. All failures are
transient: a URL that is wrong today may be right tomorrow, and the caller decides when to try again.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import aiohttp
from yarl import URL

from drivers.images.bfb import BadImage, BfbReader
from drivers.images.content_store import ContentStore, PartialFile, Validators
from drivers.images.offload import Offload
from drivers.images.pldm import PackageReader
from drivers.images.sources import AllowedHosts, RefusedAddress, shown
from eventstore.errors import TransientError

_REDIRECTIONS = (301, 302, 303, 307, 308)
_REDIRECTIONS_MAX = 5
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_MEBIBYTE = 1 << 20


class DownloadFailed(TransientError):
    """A download failed; the message says why, without secrets of the URL."""


class DownloadSettings(NamedTuple):
    """Limits of a download."""

    connect_s: float = 10.0
    """Time limit of a connection, with the resolution of the name."""
    read_s: float = 30.0
    """Time limit of a response, and of each read from it."""
    block_bytes: int = 4 * _MEBIBYTE
    """Size of the blocks that are hashed and written at a time."""
    bytes_max: int = 32 << 30
    """Maximum size of a file."""


_SETTINGS = DownloadSettings()


class Verifier(Protocol):
    """Checks the format of a file while it arrives."""

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def versions(self) -> dict[str, str]: ...


class Downloaded(NamedTuple):
    """A complete and verified file."""

    sha256: str
    size: int
    versions: dict[str, str]
    hash: hashlib._Hash
    """The hash of the content, to continue it with a configuration."""


class Request(NamedTuple):
    """A wanted download. `sha256` is empty if no checksum is known."""

    url: URL
    sha256: str
    is_bfb: bool


class _Restart(Exception):
    """The part that was downloaded is of another file."""


class Download:
    """Downloads one file. `received` counts the bytes that are there, `size` is the size of the file or -1."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        store: ContentStore,
        allowed: AllowedHosts,
        offload: Offload,
        *,
        count_bytes: Callable[[int], None],
        settings: DownloadSettings = _SETTINGS,
    ) -> None:
        self._session = session
        self._store = store
        self._allowed = allowed
        self._offload = offload
        self._count_bytes = count_bytes
        self._settings = settings
        self.received = 0
        self.size = -1

    async def run(self, request: Request, partial: PartialFile) -> Downloaded:
        """Complete the file. Raises DownloadFailed, BadImage or RefusedAddress."""
        try:
            try:
                return await self._attempt(request, partial)
            except _Restart:
                await self._offload(lambda: partial.restart(None))
                return await self._attempt(request, partial)
        except _Restart:
            raise DownloadFailed("the server does not send the part that was asked for") from None
        except BadImage:
            await self._offload(lambda: partial.restart(None))
            raise
        except OSError as error:
            raise DownloadFailed(_disk_fault(error)) from error

    async def _attempt(self, request: Request, partial: PartialFile) -> Downloaded:
        verified = _Verified(BfbReader() if request.is_bfb else PackageReader())
        known = await self._offload(partial.validators)
        if known is None or known.url != str(request.url):
            await self._offload(lambda: partial.restart(None))
            known = None
        self.received, self.size = await self._offload(lambda: partial.size), known.size if known else -1
        await self._verify_present(partial, verified)
        if known is None or self.received != known.size:
            async with self._response(request.url, known) as response:
                await self._check_response(response, request, known, partial, verified)
                await self._receive(response, partial, verified)
        return await self._finish(request, partial, verified)

    async def _verify_present(self, partial: PartialFile, verified: _Verified) -> None:
        def feed(offset: int) -> int:
            data = partial.read(offset, self._settings.block_bytes)
            verified.feed(data)
            return len(data)

        offset = 0
        while size := await self._offload(functools.partial(feed, offset)):
            offset += size

    @asynccontextmanager
    async def _response(self, url: URL, known: Validators | None) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a request for the rest of the file, after redirections."""
        headers = {"Accept-Encoding": "identity"}
        validator = known and (known.etag or known.last_modified)
        if self.received and validator:
            headers |= {"Range": f"bytes={self.received}-", "If-Range": validator}
        for _ in range(_REDIRECTIONS_MAX + 1):
            self._allowed.check_url(url)
            response = await self._request(url, headers)
            if response.status not in _REDIRECTIONS:
                try:
                    yield response
                finally:
                    response.close()
                return
            response.close()
            following = url.join(URL(response.headers.get("Location", "")))
            if url.scheme == "https" and following.scheme != "https":
                raise RefusedAddress(f"{shown(url)} redirects to a URL without TLS")
            url = following
        raise DownloadFailed(f"{shown(url)} redirects more than {_REDIRECTIONS_MAX} times")

    async def _request(self, url: URL, headers: dict[str, str]) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._settings.connect_s,
            connect=self._settings.connect_s,
            sock_read=self._settings.read_s,
        )
        if self._session.closed:  # aiohttp raises a plain RuntimeError
            raise DownloadFailed(f"{shown(url)} was not read: the process is ending")
        try:
            return await self._session.get(url, headers=headers, allow_redirects=False, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            raise _failure(url, error) from error

    async def _check_response(
        self,
        response: aiohttp.ClientResponse,
        request: Request,
        known: Validators | None,
        partial: PartialFile,
        verified: _Verified,
    ) -> None:
        """Find out whether the response continues the part that is there, and whether it fits on the disk."""
        if response.status == 416 or (response.status == 206 and not self.received):
            raise _Restart
        if response.status not in (200, 206):
            raise DownloadFailed(f"{shown(response.url)} returned HTTP status {response.status}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise DownloadFailed(f"{shown(response.url)} returned compressed content, which was not asked for")
        if response.status == 206:
            found = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
            size = int(found[3]) if found and found[3] != "*" else -1
            is_rest = found is not None and int(found[1]) == self.received and int(found[2]) + 1 == size
            if not is_rest or known is None or known.size not in (-1, size):
                raise _Restart
            self.size = size
        else:
            if self.received:
                verified.restart(BfbReader() if request.is_bfb else PackageReader())
            self.received, self.size = 0, response.content_length if response.content_length is not None else -1
            etag = response.headers.get("ETag", "")
            validators = Validators(
                str(request.url),
                "" if etag.startswith("W/") else etag,
                response.headers.get("Last-Modified", ""),
                self.size,
            )
            await self._offload(lambda: partial.restart(validators))
        if self.size > self._settings.bytes_max:
            raise DownloadFailed(f"{shown(response.url)} has {self.size} bytes, more than the maximum")
        free = await self._offload(self._store.free_bytes)
        if max(0, self.size - self.received) > free:
            raise DownloadFailed(
                f"the disk of the image store has too little space: {self.size - self.received} bytes are needed, and "
                f"{max(0, free)} may be used"
            )

    async def _receive(self, response: aiohttp.ClientResponse, partial: PartialFile, verified: _Verified) -> None:
        """Read to the end of the response, in blocks. The block of a broken response is kept too."""
        block = bytearray()
        is_first = True
        try:
            while True:
                try:
                    data = await response.content.readany()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise _failure(response.url, error) from error
                if not data:
                    break
                block += data
                if len(block) >= self._settings.block_bytes or is_first:
                    is_first = False
                    await self._take(bytes(block), partial, verified)
                    block.clear()
        finally:
            if block:
                await self._take(bytes(block), partial, verified)
        if self.size >= 0 and self.received != self.size:
            raise DownloadFailed(f"{shown(response.url)} sent {self.received} of {self.size} bytes")

    async def _take(self, data: bytes, partial: PartialFile, verified: _Verified) -> None:
        if self.received + len(data) > self._settings.bytes_max:
            raise DownloadFailed("the file is larger than the maximum")

        def work() -> None:
            verified.feed(data)
            partial.append(data)

        await self._offload(work)
        self.received += len(data)
        self._count_bytes(len(data))

    async def _finish(self, request: Request, partial: PartialFile, verified: _Verified) -> Downloaded:
        def work() -> Downloaded:
            verified.verifier.finish()
            sha256 = verified.hash.hexdigest()
            if request.sha256 and sha256 != request.sha256:
                raise BadImage(f"has the SHA-256 checksum {sha256}, not {request.sha256}")
            if not partial.size:
                raise BadImage("is empty")
            size = partial.size
            partial.finish(self._store.path(sha256))
            return Downloaded(sha256, size, verified.verifier.versions(), verified.hash)

        return await self._offload(work)


class _Verified:
    """The hash and the check of format of the bytes so far."""

    def __init__(self, verifier: Verifier) -> None:
        self.hash = hashlib.sha256()
        self.verifier = verifier

    def restart(self, verifier: Verifier) -> None:
        self.hash, self.verifier = hashlib.sha256(), verifier

    def feed(self, data: bytes) -> None:
        self.verifier.feed(data)
        self.hash.update(data)


def _failure(url: URL, error: Exception) -> Exception:
    """A failure with the cause in words that help, and without the query of the URL."""
    where = shown(url)
    cause = error.__cause__ or error
    if isinstance(cause, RefusedAddress):
        return cause
    match error:
        case TimeoutError():
            return DownloadFailed(f"{where} sent nothing within the time limit")
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "the certificate is not valid"
            return DownloadFailed(f"{where}: TLS: {reason}")
        case aiohttp.ClientSSLError():
            reason = getattr(error.os_error, "reason", None) or "the handshake failed"
            return DownloadFailed(f"{where}: TLS: {reason}")
        case aiohttp.ClientConnectorDNSError():
            return DownloadFailed(f"{where}: the name of the host cannot be resolved")
        case aiohttp.ClientConnectorError():
            return DownloadFailed(f"{where}: no connection: {error.os_error.strerror or 'refused'}")
        case aiohttp.ClientPayloadError():
            return DownloadFailed(f"{where} ended the transfer before its end")
        case _:
            return DownloadFailed(f"{where}: the transfer broke: {type(error).__name__}")


def _disk_fault(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk of the image store is full"
    return f"the folder of the image store cannot be written: {error.strerror or type(error).__name__}"
