"""The certificate of a process, its key and its trusted authority: three files, reloaded when they change.

Certificates are short-lived, and another program replaces the files while this process runs. The files are checked
every second, and a new set is loaded as a whole or not at all: while only some of the files are replaced (the key does
not match yet), the old set stays in use. Open connections stay open. An expired certificate is refused at the next
handshake, and by the listeners at the next call.

This process connects to processes of the plane only: the certificate of a node's agent does not authenticate a relay,
even with the relay's host name.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from commands.rpc.authentication import load_certificate, uri_names
from eventstore.errors import FatalError
from projections.fleet.withdrawals.principals import PLANE, Principal, parse_uri, trust_domain_of

logger = logging.getLogger(__name__)

CHECK_S = 1.0
"""Interval of checks of the files."""


class BadCertificates(FatalError):
    """The files are unusable; the sentence names the file and the reason."""


class Material(NamedTuple):
    """The content of the files of the certificate, the key and the trusted authority."""

    cert: bytes
    key: bytes
    ca: bytes


class Certificates:
    """Reads the files when created (raises BadCertificates), and again when `refresh` finds them changed.

    Without a given trust domain, the trust domain of the first certificate is used; rotations do not change it.
    """

    def __init__(self, cert: Path, key: Path, ca: Path, trust_domain: str = "") -> None:
        self._paths = {"certificate": cert, "key": key, "authority": ca}
        self._stamp = self._read_stamps()
        self.version = 1
        """Version of the certificates in use; every rotation increments it."""
        self.material = self._read()
        self._servers = {verify: self._server_context(verify) for verify in (ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL)}
        self.trust_domain, self.principal = self._whose(trust_domain)
        self._client = self._client_context()

    async def run(self) -> None:
        """Check the files every second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.refresh()

    def refresh(self) -> bool:
        """Read the files if they have changed. Returns whether they are valid and have other content than before."""
        try:
            stamp = self._read_stamps()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            material = self._read()
            if own_uri(material.cert) != own_uri(self.material.cert):
                raise BadCertificates(f"certificate {self._paths['certificate']}: must name {self.principal} as before")
            client = self._client_context()
            servers = {verify: self._server_context(verify) for verify in self._servers}
        except BadCertificates as error:
            logger.warning("new certificates rejected, the previous ones stay in use", extra={"reason": str(error)})
            return False
        if material == self.material:
            return False
        self.material, self._client, self._servers = material, client, servers
        self.version += 1
        logger.info("new certificates loaded", extra={"certificate": str(self._paths["certificate"])})
        return True

    def client_context(self) -> ssl.SSLContext:
        """The TLS context for the next connection from this process to a process of the plane."""
        return self._client

    def server_context(self, *, asks: bool = False) -> ssl.SSLContext:
        """The TLS context of a listener. It outlives rotation: every handshake uses the newest certificates.

        A client must present a certificate; with `asks`, it may connect without one.
        """
        verify = ssl.CERT_OPTIONAL if asks else ssl.CERT_REQUIRED
        context = self._server_context(verify)

        def newest(connection: ssl.SSLObject, _host: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._servers[verify]

        context.sni_callback = newest
        return context

    def grpc_server(self) -> grpc.ServerCredentials:
        """The credentials of a gRPC server; like `server_context`, they use the newest set at every handshake."""
        fetch: Any = self._newest_for_grpc()
        return grpc.dynamic_ssl_server_credentials(
            _grpc_configuration(self.material), fetch, require_client_authentication=True
        )

    def grpc_channel(self) -> grpc.ChannelCredentials:
        """The credentials for a new channel."""
        return grpc.ssl_channel_credentials(self.material.ca, self.material.key, self.material.cert)

    def _newest_for_grpc(self) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
        given = self.version

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            if given == self.version:
                return None
            given = self.version
            return _grpc_configuration(self.material)

        return newest

    def _whose(self, trust_domain: str) -> tuple[str, Principal]:
        uri = own_uri(self.material.cert)
        trust_domain = trust_domain or trust_domain_of(uri)
        found = parse_uri(uri, trust_domain)
        if not isinstance(found, Principal):
            raise BadCertificates(f"{self._paths['certificate']}: {found}")
        return trust_domain, found

    def _read_stamps(self) -> tuple[tuple[int, int, int], ...]:
        """Inode, time and size of each file, to detect a change. Links are followed: mounted secrets use them."""
        found = []
        for what, path in self._paths.items():
            try:
                status = path.stat()
            except OSError as error:
                raise BadCertificates(f"{what} {path}: {error.strerror}") from error
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _read(self) -> Material:
        found = []
        for what, path in self._paths.items():
            try:
                found.append(path.read_bytes())
            except OSError as error:
                raise BadCertificates(f"{what} {path}: {error.strerror}") from error
        return Material(*found)

    def _server_context(self, verify: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = verify
        context.num_tickets = 0  # a resumed session would not present its certificate again
        return self._filled(context)

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust_domain = self.trust_domain

        class DialsPlaneOnly(ssl.SSLObject):
            """A connection that fails unless its peer is a process of the plane."""

            def do_handshake(self) -> None:
                super().do_handshake()
                if fault := plane_fault(self.getpeercert(binary_form=True) or b"", trust_domain):
                    raise ssl.SSLCertVerificationError(fault)

        context.sslobject_class = DialsPlaneOnly
        return self._filled(context)

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        cert, key, ca = self._paths.values()
        try:
            context.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise BadCertificates(f"certificate {cert} and key {key}: cannot be used together: {error}") from error
        try:
            context.load_verify_locations(cafile=ca)
        except (OSError, ValueError) as error:
            raise BadCertificates(f"authority {ca}: has no usable certificate: {error}") from error
        return context


def own_uri(certificate: bytes) -> str:
    """The only URI name of a certificate (PEM). Raises BadCertificates."""
    try:
        uris = uri_names(load_certificate(certificate))
    except ValueError as error:
        raise BadCertificates(f"certificate: cannot be read: {error}") from error
    if len(uris) != 1:
        raise BadCertificates(f"certificate: has {len(uris)} URI names, must have one: spiffe://TRUST_DOMAIN/ROLE/NAME")
    return uris[0]


def plane_fault(certificate: bytes, trust_domain: str) -> str | None:
    """None if a server's certificate (DER) names a process of the plane; otherwise the reason as a sentence."""
    try:
        uris = uri_names(load_certificate(certificate))
    except ValueError as error:
        return f"certificate: cannot be read: {error}"
    found = parse_uri(uris[0], trust_domain) if len(uris) == 1 else f"certificate: has {len(uris)} URI names, not one"
    if not isinstance(found, Principal):
        return found
    return None if found.role == PLANE else f"certificate: names {found}, and must name {PLANE}/NAME"


def _grpc_configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca)


def _no_password() -> str:
    raise ValueError("the key is encrypted: give one without a password")
