"""Serves a BMC over HTTPS: its certificates, connections that break, and the transfers of images to it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from drivers.images.bfb import BadImage, BfbReader
from drivers.images.pldm import PACKAGE, PackageReader
from drivers.images.seeds import read_seed
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import BSP, OS, Fetch, Image
from drivers.simulators.redfish.faults import refusal
from drivers.simulators.redfish.identity import MEDIA_FILES
from drivers.simulators.redfish.messages import Answer, Request

BODY_MAX = 64 << 20
_FETCH_S = 60.0
_PARTS = {"bsp": BSP, "atf": "DPU_ATF", "uefi": "DPU_UEFI"}


class BmcServer:
    """The listener of one BMC. `url` is its address, and `handshakes` counts those of TLS."""

    def __init__(self, bmc: RedfishBmc, *, trusts: ssl.SSLContext | None = None) -> None:
        self.bmc = bmc
        self.url = ""
        self.fetched_bytes = 0
        self.handshakes = 0
        self.seed: Mapping[str, bytes] = {}
        """The files of the configuration that was read last from virtual media."""
        self._images: dict[str, Image] = {}
        self._seeds: dict[str, Mapping[str, bytes]] = {}
        """The files that the BMC keeps, by their URLs."""
        self._trusts = trusts
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.sni_callback = self._count_handshake
        self._loaded = -1
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve at an address until the block ends."""
        self._load()
        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=self._context).start()
            bound = runner.addresses[0]
            self.url = f"https://[{bound[0]}]:{bound[1]}" if ":" in host else f"https://{bound[0]}:{bound[1]}"
            async with asyncio.TaskGroup() as self._tasks:
                try:
                    yield self.url
                finally:
                    for task in list(self._running):
                        task.cancel()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        bmc = self.bmc
        asked = Request(
            request.method,
            request.path,
            {name.lower(): value for name, value in request.headers.items()},
            await request.read(),
            bmc.certificates.client(_peer(request)),
            request.remote or "",
        )
        fault = bmc.faults.of(asked)
        if fault == "hang":
            await asyncio.get_running_loop().create_future()
        if fault == "cut" or not bmc.is_up:
            return _cut(request)
        answer = refusal(fault) if fault is not None else None
        answer = answer or bmc.handle(asked)
        self._follow()
        return _cut(request) if fault == "mute" else _response(answer)

    def _count_handshake(self, *_: object) -> None:
        self.handshakes += 1

    def _follow(self) -> None:
        """Do what a request asked of the outside: transfers, and another certificate."""
        self._load()
        assert self._tasks is not None
        while self.bmc.card.fetches:
            task = self._tasks.create_task(self._fetch(self.bmc.card.fetches.pop(0)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _load(self) -> None:
        """Use the present certificate, and ask clients for theirs if the BMC accepts them."""
        certificates = self.bmc.certificates
        if self._loaded == certificates.changes:
            return
        self._loaded = certificates.changes
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
            for path, content in zip((cert, key), certificates.pem(), strict=True):
                path.write_bytes(content)
            self._context.load_cert_chain(cert, key)
        if authorities := certificates.authorities_pem():
            self._context.load_verify_locations(cadata=authorities)
        accepts = bool(authorities) and self.bmc.accounts.accepts_certificates
        self._context.verify_mode = ssl.CERT_OPTIONAL if accepts else ssl.CERT_NONE

    async def _fetch(self, fetch: Fetch) -> None:
        """Fetch an image as the BMC does, and tell the card the end."""
        try:
            image = await self._received(fetch)
            if fetch.seed_url:
                self.seed = self._seeds.get(fetch.seed_url) or read_seed(await self._content(fetch.seed_url))
        except BadImage as error:
            self.bmc.card.fetched(fetch.number, None, f"the image {error}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.bmc.card.fetched(fetch.number, None, f"the transfer failed: {_transfer_fault(error)}")
        else:
            self.bmc.card.fetched(fetch.number, image)

    async def _received(self, fetch: Fetch) -> Image:
        """Receive what an installation or an update needs, and keep the file of a medium. Raises BadImage."""
        file = MEDIA_FILES.get(fetch.target, "")
        if file and "config" in file:
            content = await self._content(fetch.url)
            self._seeds[file] = read_seed(content)
            return Image(f"sha256:{hashlib.sha256(content).hexdigest()[:12]}", {})
        if fetch.target != OS and not file:
            return await self._firmware(fetch.url)
        image = self._images.get(fetch.url) or await self._image(fetch.url)
        if file:
            self._images[file] = image
        return image

    async def _image(self, url: str) -> Image:
        """Receive an image. Raises BadImage for a wrong one."""
        digest, reader = hashlib.sha256(), BfbReader()
        is_stream = not self.bmc.identity.generation.os_by_media
        async with self._opened(url) as response:
            async for data in response.content.iter_any():
                digest.update(data)
                self.fetched_bytes += len(data)
                if is_stream:
                    reader.feed(data)
            stated = response.headers.get("Repr-Digest", "")
        if stated and stated != f"sha-256=:{base64.b64encode(digest.digest()).decode()}:":
            raise BadImage("does not have the digest that the server states")
        if is_stream:
            reader.finish()
        return image_of(digest.hexdigest(), reader.versions())

    async def _firmware(self, url: str) -> Image:
        """Receive a package of firmware; its first component is that of the BMC. Raises BadImage."""
        reader = PackageReader()
        reader.feed(await self._content(url))
        versions = [text for name, text in sorted(reader.versions().items()) if name != PACKAGE]
        if not versions:
            raise BadImage("is not a package of firmware")
        return Image(versions[0], {})

    async def _content(self, url: str) -> bytes:
        async with self._opened(url) as response:
            return await response.read()

    @asynccontextmanager
    async def _opened(self, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=_FETCH_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=self._trusts or True) as response,
        ):
            if response.status != 200:
                raise BadImage(f"was refused with HTTP status {response.status}")
            yield response


def image_of(digest: str, versions: dict[str, str]) -> Image:
    """The versions that a card shows after the installation of an image with this digest and inventory."""
    if "doca" in versions and "bsp" in versions:
        parts = {part: versions[name] for name, part in _PARTS.items() if name in versions}
        return Image(f"DOCA_{versions['doca']}_BSP_{versions['bsp']}", parts)
    text = f"sha256:{digest[:12]}"
    return Image(text, {BSP: text})


@asynccontextmanager
async def served_bmc(
    bmc: RedfishBmc, *, host: str = "127.0.0.1", port: int = 0, trusts: ssl.SSLContext | None = None
) -> AsyncIterator[BmcServer]:
    """Serve a BMC. It fetches images with the authorities in `trusts`."""
    server = BmcServer(bmc, trusts=trusts)
    async with server.listening(host, port):
        yield server


def _transfer_fault(error: Exception) -> str:
    """The cause of a transfer that failed. The text of some errors has the URL, and with it the token of the image."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the certificate of the image server is not trusted"
    return type(error).__name__


def _peer(request: web.Request) -> bytes | None:
    connection = request.get_extra_info("ssl_object")
    return None if connection is None else connection.getpeercert(binary_form=True)


def _cut(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _response(answer: Answer) -> web.Response:
    headers = {"OData-Version": "4.0", "Cache-Control": "no-store", **answer.headers}
    if isinstance(answer.body, str):
        return web.Response(
            status=answer.status,
            text=answer.body,
            content_type="application/xml" if answer.body.startswith("<?xml") else "text/html",
            headers=headers,
        )
    if answer.body is None:
        return web.Response(status=answer.status, headers=headers)
    body = json.dumps(answer.body).encode()
    return web.Response(status=answer.status, body=body, content_type="application/json", headers=headers)
