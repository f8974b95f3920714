"""The agent of a host fetches the images of its DPUs from the image store by its certificate, and no others."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.image_source import image_source
from deploy.tls.security import Security
from drivers.images.bfb import made_bfb
from drivers.images.offload import in_place
from drivers.images.server import ImageServer
from projections.resources import kinds
from tests.integration.test_image_store import DPU, PASSWORD, Store, store
from tests.support.certs import CertIssuer
from tests.support.image_planes import CONTENT

LARGE = made_bfb([(1, bytes(30_000_000))])


class HostStore(NamedTuple):
    """An image store that knows certificates, and the URL of the DPU's installation at it."""

    found: Store
    server: ImageServer
    issuer: CertIssuer
    url: str

    def context(self, who: str) -> ssl.SSLContext:
        return self.issuer.issue(who).certificates.client_context()

    async def fetch(self, who: str, url: str = "") -> bytes:
        """The image, as the agent with this certificate gets it."""
        async with image_source(lambda: self.context(who), patience_s=0.0)(url or self.url) as stream:
            content = b"".join([chunk async for chunk in stream.chunks])
            assert len(content) == stream.size
            return content


@asynccontextmanager
async def host_store(folder: Path, content: bytes = CONTENT) -> AsyncIterator[HostStore]:
    async with store(folder, content=content) as (found, _):
        issuer = CertIssuer(folder / "certs")
        security = Security(issuer.issue("plane/local").certificates, found.plane.now_ms)
        server = ImageServer(
            ("127.0.0.1", 0),
            found.installations,
            found.images,
            in_place,
            ssl=security.certificates.server_context(asks=True),
            streams_at_once=4,
            host_of=security.host_of,
        )
        host, port = await server.start()
        try:
            given = await found.installations.host_url(DPU, await found.identity())
            yield HostStore(found, server, issuer, given.replace(found.base, f"https://{host}:{port}"))
        finally:
            await server.stop()


async def test_the_agent_of_the_host_gets_the_image_with_its_configuration(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        content = await made.fetch("node-agent/worker")
        assert content.startswith(CONTENT)
        assert PASSWORD in content[len(CONTENT) :].decode()
        assert (
            made.url.partition("/installations/")[2]
            == f"{DPU}?image={(await made.found.identity()).replace('/', '%2F')}"
        )
        assert made.server.responses == {200: 1}


@pytest.mark.parametrize("who", ["node-agent/other", "operator/worker", "dpu-agent/worker", "plane/worker"])
async def test_nobody_else_gets_it(tmp_path: Path, who: str) -> None:
    async with host_store(tmp_path) as made:
        with pytest.raises(ActionFailed, match="image: the image store answered with HTTP status 404"):
            await made.fetch(who)
        assert made.found.installations.rendered == 0, "no token to join the cluster was made"


async def test_a_caller_without_a_certificate_gets_nothing(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        context = ssl.create_default_context(cafile=str(made.issuer.authority.cert))
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            async with image_source(lambda: context, patience_s=0.0)(made.url):
                pass
        with pytest.raises(ActionFailed, match="image: the image store gives images to an agent with a certificate"):
            async with image_source(None)(made.url):
                pass


async def test_an_unknown_dpu_or_image_looks_like_that_of_another_host(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        base = made.url.partition("?")[0]
        for url in (base, f"{base}?image=image%2Fx", base.replace(DPU, "other") + "?" + made.url.partition("?")[2]):
            with pytest.raises(ActionFailed, match="HTTP status 404"):
                await made.fetch("node-agent/worker", url)
        await made.found.plane.delete("set", kind=kinds.DPU_SET)
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker")


async def test_an_image_that_is_not_there_yet_is_asked_for_again(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        for image in made.found.images.images.values():
            image.ready.clear()
        with pytest.raises(
            ActionFailed, match="image: the image store has no place, or not all parts of the image, now"
        ):
            await made.fetch("node-agent/worker")


async def test_a_store_that_stops_in_the_middle_breaks_the_transfer_off(tmp_path: Path) -> None:
    async with host_store(tmp_path, LARGE) as made:
        source = image_source(lambda: made.context("node-agent/worker"), patience_s=0.0)
        with pytest.raises(ActionFailed, match=r"image: the transfer broke off after \d+ of \d+ bytes: "):
            async with source(made.url) as stream:
                async for _ in stream.chunks:
                    await made.server.stop()
        with pytest.raises(ActionFailed, match="image: the image store cannot be reached: "):
            await made.fetch("node-agent/worker")
