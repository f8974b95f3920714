"""Middleware of an HTTP listener with TLS: authenticates by certificate, and authorizes roles by path.

Paths that are not listed are denied. Health probes need no certificate: an orchestrator has none, and the responses
contain no data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from commands.rpc.authentication import CertificateAuthenticator, Identity, Unauthenticated
from commands.rpc.denials import Denials
from drivers.wire.agent_listener import PEER_IDENTITY, PeerIdentity
from projections.fleet.withdrawals.principals import DPU_AGENT, HOST_AGENT, NODE_AGENT, Principal
from projections.zones.dpus.host_installs import CertifiedHost

PUBLIC: frozenset[str] = frozenset()
"""The roles of a path that needs no authentication."""


def auth_middleware(
    authenticator: CertificateAuthenticator,
    denials: Denials,
    paths: Mapping[str, frozenset[str]],
    others: frozenset[str] | None = None,
) -> Middleware:
    """Middleware that authorizes requests. `paths` has the roles that each path admits. `others` are the roles that any
    other path admits; with None, it admits no role."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        roles = paths.get(request.path, others)
        if roles is PUBLIC:
            return await handler(request)
        try:
            identity = _authenticate(authenticator, request)
        except Unauthenticated as error:
            denials.count_unauthenticated(str(request.remote), str(error))
            return _denial(401, str(error))
        principal = identity.principal
        if roles is None or principal.role not in roles:
            reason = (
                f"{request.path}: {principal} must have the role {' or '.join(sorted(roles))}"
                if roles
                else f"{request.path}: no role may read it"
            )
            denials.count_denied(str(principal), reason)
            return _denial(403, reason)
        request[PEER_IDENTITY] = PeerIdentity(principal.name if principal.role == DPU_AGENT else "", str(principal))
        with _while_trusted(request, authenticator, identity):
            return await handler(request)

    return authorize


@contextmanager
def _while_trusted(request: web.Request, authenticator: CertificateAuthenticator, identity: Identity) -> Iterator[None]:
    """Abort the connection when its certificate expires or is revoked: agent links and feeds of the page last
    for days, the download of an image for minutes.
    """
    transport = request.transport
    if transport is None:  # the client has already disconnected
        yield
        return
    expiry = asyncio.get_running_loop().call_later(authenticator.remaining_s(identity), transport.abort)
    try:
        with authenticator.unless_revoked(identity, transport.abort):
            yield
    finally:
        expiry.cancel()


def _authenticate(authenticator: CertificateAuthenticator, request: web.Request) -> Identity:
    transport = request.transport
    connection = transport.get_extra_info("ssl_object") if transport is not None else None
    certificate = connection.getpeercert(binary_form=True) if connection is not None else None
    if not certificate:
        raise Unauthenticated("certificate: a client certificate is required, and none was given")
    return authenticator.authenticate(certificate)


@contextmanager
def host_agent_of(authenticator: CertificateAuthenticator, request: web.Request) -> Iterator[CertifiedHost | None]:
    """The host whose agent makes a request; None if its certificate names another role, or is missing or invalid.
    While the context lasts, the connection is aborted when the certificate expires or is revoked: an image takes
    minutes."""
    try:
        identity = _authenticate(authenticator, request)
    except Unauthenticated:
        identity = None
    host = None if identity is None else _certified_host(identity.principal)
    if identity is None or host is None:
        yield None
        return
    with _while_trusted(request, authenticator, identity):
        yield host


def _certified_host(principal: Principal) -> CertifiedHost | None:
    if principal.role == HOST_AGENT:
        namespace, _, name = principal.name.partition("/")
        return CertifiedHost(name, namespace)
    return CertifiedHost(principal.name) if principal.role == NODE_AGENT else None


def _denial(status: int, reason: str) -> web.Response:
    return web.Response(status=status, text=f"{reason}\n")
