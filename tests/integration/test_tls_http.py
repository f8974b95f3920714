"""HTTP under TLS: probes for every client, all other paths for readers only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from deploy.settings.settings import Address
from deploy.tls.security import Security
from deploy.web.http import HttpServer
from deploy.web.metrics.exposition import Exposition
from projections.fleet.withdrawals.principals import PRINCIPAL_ROLES
from tests.support.certs import CertFiles, CertIssuer
from tests.support.served import now_ms

Get = Callable[[str, CertFiles | None], Awaitable[tuple[int, str]]]


class Page:
    """The HTTP listener of a process, and the issuer of its certificates."""

    def __init__(self, cert_issuer: CertIssuer, security: Security, address: str) -> None:
        self.cert_issuer = cert_issuer
        self.security = security
        self.address = address

    async def get(self, path: str, who: str | CertFiles | None) -> tuple[int, str]:
        cert_files = self.cert_issuer.issue(who) if isinstance(who, str) else who
        context = ssl.create_default_context(cafile=str(self.cert_issuer.authority.cert))
        if cert_files is not None:
            context.load_cert_chain(cert_files.cert, cert_files.key)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://{self.address}{path}", ssl=context) as response,
        ):
            return response.status, await response.text()


async def _secret(_request: web.Request) -> web.Response:
    return web.Response(text="secret")


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"more")
        await asyncio.sleep(0.01)


@asynccontextmanager
async def page(folder: Path, now_ms: Callable[[], int] = now_ms) -> AsyncIterator[Page]:
    cert_issuer = CertIssuer(folder / "certs")
    security = Security(cert_issuer.issue("plane/local").certificates, now_ms)
    routes = [web.get("/secret", _secret), web.get("/healthz/secret", _secret), web.get("/endless", _endless)]
    server = HttpServer(Address("127.0.0.1", 0), Exposition([]), lambda: "", routes=routes, security=security.http())
    try:
        yield Page(cert_issuer, security, str(await server.start()))
    finally:
        await server.stop()


async def test_only_probes_need_no_certificate(tmp_path: Path) -> None:
    async with page(tmp_path) as served:
        for path in ("/healthz", "/readyz"):
            assert await served.get(path, None) == (200, "ok\n")
        for path in ("/metrics", "/secret", "/healthz/secret", "/healthz/", "//healthz", "/no-such", "/%2e%2e/secret"):
            status, text = await served.get(path, None)
            assert (status, text) == (401, "certificate: a client certificate is required, and none was given\n"), path
        assert served.security.denials.unauthenticated == 7


@pytest.mark.parametrize("role", PRINCIPAL_ROLES)
async def test_only_readers_may_read(tmp_path: Path, role: str) -> None:
    async with page(tmp_path) as served:
        status, text = await served.get("/secret", f"{role}/a/x")
        if role in ("viewer", "operator", "approver"):
            assert (status, text) == (200, "secret")
        else:
            assert status == 403
            assert text == f"/secret: {role}/a/x must have the role approver or operator or viewer\n"


async def test_an_endless_response_ends_when_its_certificate_expires(tmp_path: Path) -> None:
    expires_ms = 0

    async with page(tmp_path, lambda: expires_ms - 500) as served:
        cert_files = served.cert_issuer.issue("viewer/vic")
        expires_ms = cert_files.expires_ms
        async with asyncio.timeout(90):
            with pytest.raises(aiohttp.ClientError):
                await served.get("/endless", cert_files)


async def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path) -> None:
    async with page(tmp_path / "a") as served:
        other = CertIssuer(tmp_path / "b").issue("viewer/vic")
        with pytest.raises((aiohttp.ClientError, OSError)):
            await served.get("/healthz", other)


async def test_older_tls_versions_are_rejected(tmp_path: Path) -> None:
    async with page(tmp_path) as served:
        context = ssl.create_default_context(cafile=str(served.cert_issuer.authority.cert))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = served.address.split(":")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(host, int(port), ssl=context)
        context.maximum_version = ssl.TLSVersion.TLSv1_3
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()
