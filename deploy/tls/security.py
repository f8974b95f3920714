"""The TLS state of a process: its certificates, revocations and access rules, created here for all its parts.

A process without certificates has no Security; its listeners are then on the loopback, unless `insecure` is set.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from commands.rpc.access import AccessControl
from commands.rpc.authentication import CertificateAuthenticator
from commands.rpc.denials import Denials
from commands.rpc.limits import Limits
from deploy.settings.settings import Settings
from deploy.tls.auth_middleware import PUBLIC, auth_middleware, host_agent_of
from deploy.tls.certificates import BadCertificates, Certificates
from deploy.tls.revocations import Revocations
from drivers.wire.websocket import PATH
from projections.fleet.withdrawals.principals import APPROVER, DPU_AGENT, OPERATOR, PLANE, SIMULATOR, VIEWER
from projections.zones.dpus.host_installs import CertifiedHost

READERS = frozenset({VIEWER, OPERATOR, APPROVER})
_HTTP_PATHS = {"/healthz": PUBLIC, "/readyz": PUBLIC}


class Security:
    """The TLS state of one process. `denials` has counters; `run` loads new files. Raises BadCertificates."""

    def __init__(self, certificates: Certificates, now_ms: Callable[[], int], revoked: Path | None = None) -> None:
        self.certificates = certificates
        self.denials = Denials()
        self._authenticator = CertificateAuthenticator(certificates.trust_domain, now_ms)
        self.revocations = None if revoked is None else Revocations(revoked, self._authenticator.revoke)

    async def run(self) -> None:
        """Load new certificates and revocations, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.certificates.run())
            if self.revocations is not None:
                tasks.create_task(self.revocations.run())

    @property
    def revocations_fault(self) -> str:
        """Why the list of revoked certificates could not be loaded; empty if it is loaded, or if none is configured."""
        return "" if self.revocations is None else self.revocations.fault

    @property
    def access(self) -> AccessControl:
        """The access control of the API."""
        return AccessControl(self._authenticator, self.denials)

    def http(self) -> tuple[ssl.SSLContext, Middleware]:
        """TLS and middleware of the HTTP listener: the page, the metrics, and probes without a certificate."""
        guard = auth_middleware(self._authenticator, self.denials, _HTTP_PATHS, others=READERS)
        return self.certificates.server_context(asks=True), guard

    def host_of(self, request: web.Request) -> AbstractContextManager[CertifiedHost | None]:
        """The host whose agent makes a request to the image store; None for everybody else. While the context lasts,
        the connection is aborted when the certificate expires or is revoked."""
        return host_agent_of(self._authenticator, request)

    def agents(self, devices_path: str) -> tuple[ssl.SSLContext, Middleware]:
        """TLS and middleware of the listener for agents, where other processes of the plane also read the DPUs'
        tables.
        """
        paths = {PATH: frozenset({DPU_AGENT, SIMULATOR}), devices_path: frozenset({PLANE})}
        return self.certificates.server_context(), auth_middleware(self._authenticator, self.denials, paths)


def security_of(settings: Settings, now_ms: Callable[[], int]) -> Security | None:
    """The TLS state for these settings; None without certificates. Raises BadCertificates."""
    if settings.tls_cert is None or settings.tls_key is None or settings.tls_client_ca is None:
        return None
    certificates = Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.trust_domain)
    if certificates.principal.role != PLANE:
        raise BadCertificates(f"tls_cert {settings.tls_cert}: names {certificates.principal}, must name {PLANE}/NAME")
    return Security(certificates, now_ms, settings.tls_revoked)


def api_options(settings: Settings, security: Security | None, connections: int) -> dict[str, Any]:
    """The options of an ApiServer from these settings: limits, and access control with TLS."""
    limits = Limits(
        rate_per_s=settings.calls_per_second,
        burst=settings.calls_burst,
        concurrent_calls=settings.calls_at_once,
        streams_per_connection=settings.streams_per_connection,
        connections=connections,
    )
    reflects = settings.reflection if settings.reflection is not None else security is None
    if security is None:
        return {"limits": limits, "has_reflection": reflects}
    credentials = security.certificates.grpc_server()
    return {"limits": limits, "has_reflection": reflects, "access": security.access, "credentials": credentials}
