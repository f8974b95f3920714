"""Authentication by certificate, for every listener.

The handshake has proved that the certificate is one of the authority's and that the peer has its key. This module
checks the rest: exactly one URI name of this trust domain (never the common name, which no authority checks), the
validity period, and revocation. A connection may last for days after its handshake, so every call is checked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cryptography import x509

from eventstore.errors import PermanentError
from projections.fleet.withdrawals.principals import Principal, parse_uri

CACHE_SIZE = 4_096


class Unauthenticated(PermanentError):
    """The caller has not proved its identity. gRPC: UNAUTHENTICATED."""


class Identity(NamedTuple):
    """The principal that a certificate names, its expiry and its serial number."""

    principal: Principal
    expires_ms: int
    serial: int


class CertificateAuthenticator:
    """Authenticates certificates, and caches the latest parsed ones: every call on a connection has the same
    certificate.
    """

    def __init__(self, trust_domain: str, now_ms: Callable[[], int]) -> None:
        self.trust_domain = trust_domain
        self._now_ms = now_ms
        self._known: OrderedDict[bytes, Identity | str] = OrderedDict()
        self.revision = 0
        """Incremented when the list of revoked certificates changes."""
        self._revoked: frozenset[int] = frozenset()
        self._open: dict[int, dict[object, Callable[[], None]]] = {}
        """Functions that disconnect connections, by the serial number of their certificate."""

    def authenticate(self, certificate: bytes) -> Identity:
        """The identity in a certificate (PEM or DER) that the handshake has verified. Raises Unauthenticated."""
        known = self._known.get(certificate)
        if known is None:
            known = self._known[certificate] = _read(certificate, self.trust_domain)
            if len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        if isinstance(known, str):
            raise Unauthenticated(known)
        if known.serial in self._revoked:
            raise Unauthenticated(f"certificate: the one of {known.principal} is revoked")
        if self._now_ms() >= known.expires_ms:
            raise Unauthenticated(f"certificate: the one of {known.principal} has expired; reconnect with a new one")
        return known

    def revoke(self, serials: frozenset[int]) -> None:
        """Reject certificates with these serial numbers, and disconnect their connections."""
        self._revoked = serials
        self.revision += 1
        for serial in sorted(serials & self._open.keys()):
            for disconnect in list(self._open[serial].values()):
                disconnect()

    @contextmanager
    def unless_revoked(self, identity: Identity, disconnect: Callable[[], None]) -> Iterator[None]:
        """The context of a long-lived connection: it is disconnected when its certificate is revoked."""
        opened, key = self._open.setdefault(identity.serial, {}), object()
        opened[key] = disconnect
        try:
            yield
        finally:
            del opened[key]
            if not opened:
                self._open.pop(identity.serial, None)

    def remaining_s(self, identity: Identity) -> float:
        """Seconds until the certificate expires."""
        return max(0.0, (identity.expires_ms - self._now_ms()) / 1_000)


def uri_names(certificate: x509.Certificate) -> list[str]:
    """The URI names of a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def load_certificate(certificate: bytes) -> x509.Certificate:
    """Load the first certificate of PEM text, or a DER certificate. Raises ValueError."""
    if certificate.startswith(b"-----"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _read(certificate: bytes, trust_domain: str) -> Identity | str:
    try:
        parsed = load_certificate(certificate)
    except ValueError as error:
        return f"certificate: cannot be read: {error}"
    uris = uri_names(parsed)
    if len(uris) != 1:
        return f"certificate: has {len(uris)} URI names and must have exactly one, spiffe://{trust_domain}/ROLE/NAME"
    found = parse_uri(uris[0], trust_domain)
    if isinstance(found, str):
        return found
    return Identity(found, int(parsed.not_valid_after_utc.timestamp() * 1_000), parsed.serial_number)
