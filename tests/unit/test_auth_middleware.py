"""Authentication of HTTP listeners and of the API: callers, permissions, and the expiry of certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from commands.rpc.access import AccessControl
from commands.rpc.authentication import CertificateAuthenticator, Unauthenticated
from commands.rpc.denials import Denials
from deploy.tls.auth_middleware import PUBLIC, auth_middleware
from projections.fleet.withdrawals.principals import DPU_AGENT, PRINCIPAL_ROLES, VIEWER
from tests.support.certs import TRUST_DOMAIN, CertIssuer
from tests.support.embedded import Clock
from tests.support.virtual_loop import run_virtual

PATHS = {"/probe": PUBLIC, "/link": frozenset({DPU_AGENT})}


class Connection(asyncio.Transport):
    """A TLS connection with this client certificate (DER), or without one."""

    def __init__(self, certificate: bytes | None) -> None:
        super().__init__({"ssl_object": self})
        self._certificate = certificate
        self.is_broken = False

    def getpeercert(self, binary_form: bool) -> bytes | None:
        return self._certificate if binary_form else None

    def abort(self) -> None:
        self.is_broken = True

    def is_closing(self) -> bool:
        return self.is_broken


@pytest.fixture(scope="module")
def cert_issuer(tmp_path_factory: pytest.TempPathFactory) -> CertIssuer:
    return CertIssuer(tmp_path_factory.mktemp("certs"))


def der(cert_issuer: CertIssuer, who: str) -> bytes:
    """A certificate for `ROLE/NAME` in DER."""
    return x509.load_pem_x509_certificate(cert_issuer.issue(who).cert.read_bytes()).public_bytes(Encoding.DER)


def expiry_ms(certificate: bytes) -> int:
    return int(x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp() * 1_000)


async def status(
    connection: Connection,
    path: str,
    clock: Clock,
    others: frozenset[str] | None = None,
    handle: Callable[[], Awaitable[None]] | None = None,
) -> int:
    async def handler(_request: web.Request) -> web.StreamResponse:
        if handle is not None:
            await handle()
        return web.Response(text="in")

    authenticator, denials = CertificateAuthenticator(TRUST_DOMAIN, clock), Denials()
    guard = cast("Callable[..., Awaitable[web.Response]]", auth_middleware(authenticator, denials, PATHS, others))
    request = make_mocked_request("GET", path, transport=connection)
    return (await guard(request, handler)).status


@pytest.mark.parametrize("role", PRINCIPAL_ROLES)
def test_a_path_without_an_entry_is_denied_to_all(cert_issuer: CertIssuer, role: str) -> None:
    async def scenario() -> list[int]:
        paths = ("/probe", "/link", "/link/", "/devices", "/")
        return [await status(Connection(der(cert_issuer, f"{role}/a/x")), path, Clock(0)) for path in paths]

    assert run_virtual(scenario()) == [200, 200 if role == DPU_AGENT else 403, 403, 403, 403]


def test_other_roles_may_use_only_paths_without_an_entry(cert_issuer: CertIssuer) -> None:
    async def scenario() -> list[int]:
        who = der(cert_issuer, "viewer/vic")
        return [await status(Connection(who), path, Clock(0), frozenset({VIEWER})) for path in ("/link", "/devices")]

    assert run_virtual(scenario()) == [403, 200]


def test_a_certificate_is_valid_until_just_before_its_end(cert_issuer: CertIssuer) -> None:
    who = der(cert_issuer, "dpu-agent/d")

    async def scenario(left_ms: int) -> int:
        clock = Clock(0)
        clock.ms = expiry_ms(who) - left_ms
        return await status(Connection(who), "/link", clock)

    assert [run_virtual(scenario(left_ms)) for left_ms in (1, 0, -1)] == [200, 401, 401]


def test_a_connection_is_aborted_if_its_certificate_expires_during_a_request(
    cert_issuer: CertIssuer,
) -> None:
    who = der(cert_issuer, "dpu-agent/d")

    async def scenario(takes_s: float) -> bool:
        clock, connection = Clock(0), Connection(who)
        clock.ms = expiry_ms(who) - 10_000
        assert await status(connection, "/link", clock, handle=lambda: asyncio.sleep(takes_s)) == 200
        await asyncio.sleep(100)
        return connection.is_broken

    assert [run_virtual(scenario(takes_s)) for takes_s in (9, 11)] == [False, True]


def test_a_caller_without_a_certificate_or_with_two_is_rejected(cert_issuer: CertIssuer) -> None:
    async def scenario() -> int:
        found = await status(Connection(None), "/link", Clock(0))
        access = AccessControl(CertificateAuthenticator(TRUST_DOMAIN, Clock(0)), Denials())
        one, other = der(cert_issuer, "viewer/vic"), der(cert_issuer, "operator/olga")
        assert str(access.authenticate(lambda: {"x509_pem_cert": [one]}, lambda: "ipv4:10.0.0.1:7")) == "viewer/vic"
        with pytest.raises(Unauthenticated, match="none was given"):
            access.authenticate(lambda: {}, lambda: "ipv4:10.0.0.1:7")
        with pytest.raises(Unauthenticated, match="none was given"):
            access.authenticate(lambda: {"x509_pem_cert": [one, other]}, lambda: "ipv4:10.0.0.1:7")
        assert access.denials.unauthenticated == 2
        return found

    assert run_virtual(scenario()) == 401
