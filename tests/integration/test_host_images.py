"""The agent of a host fetches the images of its DPUs from the image store by its certificate, and no others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from cryptography.x509 import Certificate
from msgspec.structs import replace

from commands.rpc.authentication import load_certificate
from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.image_source import image_source
from deploy.tls.security import Security
from drivers.images.bfb import made_bfb
from drivers.images.offload import in_place
from drivers.images.server import ImageServer
from projections.resources import kinds
from projections.zones.dpus.phases import OS_INSTALLING, READY, REBOOTING
from projections.zones.rows import Dpu
from tests.integration.test_image_store import DPU, PASSWORD, Store, store
from tests.support.certs import CertIssuer
from tests.support.eventually import until
from tests.support.image_planes import CONTENT

LARGE = made_bfb([(1, bytes(30_000_000))])


class HostStore(NamedTuple):
    """An image store that knows certificates, and the URL of the DPU's installation at it."""

    found: Store
    server: ImageServer
    issuer: CertIssuer
    security: Security
    url: str
    revoked: Path
    """The list of revoked certificates of the image store."""

    def context(self, who: str) -> ssl.SSLContext:
        return self.issuer.issue(who).certificates.client_context()

    def revoke(self, certificate: Certificate) -> None:
        self.revoked.write_text(f"{certificate.serial_number:x}\n")
        assert self.security.revocations is not None
        assert self.security.revocations.refresh()

    async def fetch(self, who: str, url: str = "", *, retry_s_max: float = 0.0) -> bytes:
        """The image, as the agent with this certificate gets it."""
        async with image_source(lambda: self.context(who), retry_s_max=retry_s_max)(url or self.url) as stream:
            content = b"".join([chunk async for chunk in stream.chunks])
            assert len(content) == stream.size
            return content


def row_of(*, image: str, **fields: Any) -> Dpu:
    """The DPU in its zone, while the agent of its host installs this image."""
    row = Dpu("z", 1, "worker", "s", "rshim:dpf/worker", OS_INSTALLING, 1, 1, 1, 1, step_state="running", image=image)
    return replace(row, **fields)


@asynccontextmanager
async def host_store(folder: Path, content: bytes = CONTENT) -> AsyncIterator[HostStore]:
    async with store(folder, content=content) as (found, _):
        issuer = CertIssuer(folder / "certs")
        revoked = folder / "revoked.txt"
        revoked.write_text("# none\n")
        security = Security(issuer.issue("plane/local").certificates, found.plane.now_ms, revoked)
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
        found.rows[DPU] = row_of(image=await found.identity())
        try:
            given = await found.installations.host_url(DPU, await found.identity())
            yield HostStore(
                found, server, issuer, security, given.replace(found.base, f"https://{host}:{port}"), revoked
            )
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


async def test_a_certificate_with_the_namespace_is_needed_once_two_namespaces_have_a_host_of_the_name(
    tmp_path: Path,
) -> None:
    async with host_store(tmp_path) as made:
        assert (await made.fetch("host-agent/dpf/worker")).startswith(CONTENT)
        assert (await made.fetch("node-agent/worker")).startswith(CONTENT)
        await made.found.plane.apply("worker", {}, kind=kinds.DPU_NODE, namespace="other")
        assert (await made.fetch("host-agent/dpf/worker")).startswith(CONTENT)
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker")
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("host-agent/other/worker")


async def test_a_certificate_without_a_namespace_is_that_of_the_only_host_of_its_name(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        image = await made.found.identity()
        made.found.rows[DPU] = row_of(image=image, bmc_address="rshim:other/worker")
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker")
        assert (await made.fetch("host-agent/other/worker")).startswith(CONTENT)


@pytest.mark.parametrize(
    "who",
    [
        "node-agent/other",
        "node-agent/dpf/worker",
        "host-agent/dpf/other",
        "host-agent/other/worker",
        "operator/worker",
        "dpu-agent/worker",
        "plane/worker",
    ],
)
async def test_nobody_else_gets_it(tmp_path: Path, who: str) -> None:
    async with host_store(tmp_path) as made:
        with pytest.raises(ActionFailed, match="image: the image store answered with HTTP status 404"):
            await made.fetch(who)
        assert made.found.installations.rendered == 0, "no token to join the cluster was made"


async def test_a_caller_without_a_certificate_gets_nothing(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        context = ssl.create_default_context(cafile=str(made.issuer.authority.cert))
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            async with image_source(lambda: context, retry_s_max=0.0)(made.url):
                pass
        with pytest.raises(ActionFailed, match="image: the image store gives images to an agent with a certificate"):
            async with image_source(None)(made.url):
                pass


async def test_a_dpu_with_a_bmc_gives_nothing_to_the_agent_of_its_host(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        image = await made.found.identity()
        for address in ("redfish://10.0.0.1", "rshim:dpf/other", "simulated:worker", ""):
            made.found.rows[DPU] = row_of(image=image, bmc_address=address)
            with pytest.raises(ActionFailed, match="HTTP status 404"):
                await made.fetch("node-agent/worker")
        made.found.rows.clear()
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker")
        assert made.found.installations.rendered == 0, "no token to join the cluster was made"


@pytest.mark.parametrize(
    "fields", [{"phase": READY, "step_state": "idle"}, {"step_state": "idle"}, {"phase": REBOOTING}, {"image": "other"}]
)
async def test_an_image_is_sent_only_during_the_step_that_installs_it(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with host_store(tmp_path) as made:
        made.found.rows[DPU] = row_of(**{"image": await made.found.identity(), **fields})
        with pytest.raises(ActionFailed, match="image: the image store is busy"):
            await made.fetch("node-agent/worker")
        assert made.found.installations.rendered == 0, "no token to join the cluster was made"


async def test_a_request_for_the_head_alone_makes_no_token(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made, aiohttp.ClientSession() as session:
        async with session.head(made.url, ssl=made.context("node-agent/worker")) as response:
            assert response.status == 405
        assert made.found.installations.rendered == 0


async def test_an_agent_has_one_download_of_a_dpu_at_a_time(tmp_path: Path) -> None:
    async with host_store(tmp_path, LARGE) as made:
        source = image_source(lambda: made.context("node-agent/worker"), retry_s_max=0.0)
        async with source(made.url):
            with pytest.raises(ActionFailed, match="image: the image store is busy"):
                await made.fetch("node-agent/worker")
        await until(lambda: made.server.streams == 0)
        assert len(await made.fetch("node-agent/worker")) > len(LARGE)
        assert made.found.installations.rendered == 2, "the content of a host is not kept"


async def test_an_unknown_dpu_looks_like_that_of_another_host_and_an_unknown_image_like_one_to_come(
    tmp_path: Path,
) -> None:
    async with host_store(tmp_path) as made:
        base, _, query = made.url.partition("?")
        for url in (base, f"{base}?image=image%2Fx"):
            with pytest.raises(ActionFailed, match="image: the image store is busy"):
                await made.fetch("node-agent/worker", url)
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker", base.replace(DPU, "other") + "?" + query)
        await made.found.plane.delete("set", kind=kinds.DPU_SET)
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            await made.fetch("node-agent/worker")


async def test_an_image_that_is_not_there_yet_is_asked_for_again(tmp_path: Path) -> None:
    async with host_store(tmp_path) as made:
        images = [*made.found.images.images.values()]
        ready = [dict(image.ready) for image in images]
        for image in images:
            image.ready.clear()
        with pytest.raises(ActionFailed, match="image: the image store is busy, or has not downloaded the image yet"):
            await made.fetch("node-agent/worker")
        fetching = asyncio.ensure_future(made.fetch("node-agent/worker", retry_s_max=120.0))
        await until(lambda: made.server.responses[503] == 2)
        for image, files in zip(images, ready, strict=True):
            image.ready.update(files)
        assert (await fetching).startswith(CONTENT)


async def test_a_revoked_certificate_ends_its_download_and_no_other(tmp_path: Path) -> None:
    async with host_store(tmp_path, LARGE) as made:
        certificate = made.issuer.issue("node-agent/worker").certificates
        source = image_source(certificate.client_context, retry_s_max=0.0)
        with pytest.raises(ActionFailed, match=r"image: the transfer broke off after \d+ of \d+ bytes: "):
            async with source(made.url) as stream:
                await anext(stream.chunks)
                made.revoke(load_certificate(certificate.material.cert))
                await until(lambda: made.server.streams == 0)
                async for _ in stream.chunks:
                    pass
        with pytest.raises(ActionFailed, match="HTTP status 404"):
            async with source(made.url):
                pass
        async with image_source(lambda: made.context("node-agent/worker"), retry_s_max=0.0)(made.url) as stream:
            await anext(stream.chunks)
            made.revoke(load_certificate(made.issuer.issue("operator/ann").certificates.material.cert))
            async for _ in stream.chunks:
                pass


async def test_a_store_that_stops_in_the_middle_breaks_the_transfer_off(tmp_path: Path) -> None:
    async with host_store(tmp_path, LARGE) as made:
        source = image_source(lambda: made.context("node-agent/worker"), retry_s_max=0.0)
        with pytest.raises(ActionFailed, match=r"image: the transfer broke off after \d+ of \d+ bytes: "):
            async with source(made.url) as stream:
                async for _ in stream.chunks:
                    await made.server.stop()
        with pytest.raises(ActionFailed, match="image: the image store cannot be reached: "):
            await made.fetch("node-agent/worker")
