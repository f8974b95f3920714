"""Certificates of BMCs: which one is trusted, and how a BMC gets one of the plane's authority.

A new BMC has a certificate that it signed itself, so at the first contact nothing proves which machine answers. The
plane then remembers the certificate in the log, as a fact of the DPU, and accepts no other one for it. With an
authority, the first contact ends with a certificate of that authority, and only the first contact accepts another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.redfish.resources import ROOT, Request
from eventstore.errors import FatalError
from projections.field_checks import quoted
from projections.resources.specs import JSON
from projections.zones.dpus.certificates import AUTHORITY, CERTIFICATE_FACT

VALID = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
REPORT_BEFORE = timedelta(days=15)
"""Time before the end of a certificate from which on a person is needed, if the plane cannot renew it."""
PINNED_MAX = 4_096
_CLOCKS_DIFFER = timedelta(days=1)
"""BMCs without a battery start with a wrong clock."""

_Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Verdict(NamedTuple):
    """Whether a certificate is accepted. `refusal` says why not; `is_due` whether the BMC needs a new one. `ends` is
    the end of a certificate of the authority."""

    fact: str = ""
    is_due: bool = False
    refusal: str = ""
    ends: datetime | None = None


class BmcAuthority:
    """The authority that signs the certificates of BMCs. Without a key it only recognizes them."""

    def __init__(self, certificate: bytes, key: bytes | None = None) -> None:
        self.pem = certificate
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate)
        except ValueError as error:
            raise FatalError("bmc_ca: it must be a certificate, in PEM") from error
        try:
            loaded = None if key is None else serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise FatalError("bmc_ca_key: it must be an unencrypted key, in PEM") from error
        if loaded is not None and not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise FatalError("bmc_ca_key: it must be an elliptic-curve or RSA key")
        if loaded is not None and loaded.public_key() != self._certificate.public_key():
            raise FatalError("bmc_ca_key: it is not the key of the certificate bmc_ca")
        self._key: _Key | None = loaded

    @property
    def signs(self) -> bool:
        return self._key is not None

    def has_issued(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            return False
        return True

    def sign(self, request: bytes, host: str, now: datetime) -> bytes:
        """The certificate for a signing request of the BMC at this host. Only its key is taken: the names are those by
        which the plane dials it. Raises TaskFailed."""
        assert self._key is not None
        try:
            csr = x509.load_pem_x509_csr(request)
            is_valid, public = csr.is_signature_valid, csr.public_key()
        except (UnsupportedAlgorithm, ValueError) as error:
            raise TaskFailed(f"certificate: {host} returned an invalid signing request: {error}") from error
        if not is_valid:
            raise TaskFailed(f"certificate: {host} returned a signing request with an invalid signature")
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(csr.subject)
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER)
            .not_valid_after(now + VALID)
            .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def issue_client(self, name: str, now: datetime, valid: timedelta) -> tuple[bytes, bytes]:
        """A certificate for a client of devices, and its new key, both in PEM."""
        assert self._key is not None
        private = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._certificate.subject)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        key = private.private_bytes(encoding, form, serialization.NoEncryption())
        return certificate.public_bytes(encoding), key


def judge(host: str, found: bytes, facts: Mapping[str, str], authority: BmcAuthority | None, now: datetime) -> Verdict:
    """The verdict on the certificate, in DER, of the BMC at this host, given the facts of its DPU."""
    known, print_ = facts.get(CERTIFICATE_FACT, ""), hashlib.sha256(found).hexdigest()
    if authority is None:
        if known in ("", print_):
            return Verdict(print_)
        return Verdict(
            refusal=f"certificate: {host} presents another one than when the DPU was initialized; if its BMC was "
            "replaced or reset, delete the DPU and register it again"
        )
    try:
        certificate = x509.load_der_x509_certificate(found)
    except ValueError as error:
        return Verdict(refusal=f"certificate: that of {host} cannot be read: {error}")
    if authority.has_issued(certificate) and names_host(certificate, host):
        ends = certificate.not_valid_after_utc
        if authority.signs:
            return Verdict(AUTHORITY, is_due=ends - now < RENEW_BEFORE, ends=ends)
        if ends <= now:
            return Verdict(
                refusal=f"certificate: that of {host} expired on {ends:%Y-%m-%d}; the plane has no bmc_ca_key"
            )
        return Verdict(AUTHORITY, ends=ends)
    if not authority.signs:
        return Verdict(refusal=f"certificate: that of {host} is not of bmc_ca, and the plane has no bmc_ca_key")
    if known in ("", print_):
        return Verdict(print_, is_due=True)
    return Verdict(
        refusal=f"certificate: that of {host} is no longer of bmc_ca; if its BMC was replaced or reset, delete the DPU "
        "and register it again"
    )


def _unchecked() -> ssl.SSLContext:
    """For a certificate that is to be looked at. Authorities are not loaded: that takes milliseconds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_UNCHECKED = _unchecked()


async def peer_certificate(host: str) -> bytes:
    """The certificate, in DER, that the BMC at HOST:PORT presents. Nothing is sent to it. Raises Unreachable."""
    try:
        at = urlsplit(f"https://{host}")
        _, writer = await asyncio.open_connection(at.hostname, at.port or 443, ssl=_UNCHECKED)
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
        raise Unreachable(f"device: {host} did not respond: {error}") from error
    except (ValueError, UnicodeError) as error:
        raise NeedsOperator(f"bmc_address: {quoted(host)} cannot be dialed: {error}") from error
    try:
        presented: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    if presented is None:
        raise TaskFailed(f"certificate: {host} presented none")
    return presented


@lru_cache(PINNED_MAX)
def pinned(certificate: bytes) -> aiohttp.Fingerprint:
    """The trust in exactly this certificate. Connections are reused only by requests with the same object."""
    return aiohttp.Fingerprint(hashlib.sha256(certificate).digest())


class PresentedCertificates:
    """The certificates, in DER, that BMCs presented last, by host and port. With a known one, requests begin at once,
    and fail if the BMC presents another one now. To look at the certificate first takes a TLS handshake, at which BMCs
    are slow, and every step of a DPU would begin with it."""

    def __init__(self) -> None:
        self._by_host: dict[str, bytes] = {}

    def of(self, host: str) -> bytes | None:
        return self._by_host.get(host)

    def keep(self, host: str, certificate: bytes) -> None:
        """Keep the certificate of a BMC, and forget the oldest one beyond PINNED_MAX."""
        self._by_host.pop(host, None)
        self._by_host[host] = certificate
        if len(self._by_host) > PINNED_MAX:
            del self._by_host[next(iter(self._by_host))]


def signing_request(host: str, collection: str) -> Request:
    """The request for a signing request of a new key, to the BMC at this host."""
    host = urlsplit(f"https://{host}").hostname or host
    body: JSON = {
        "CertificateCollection": {"@odata.id": collection},
        "CommonName": host,
        "AlternativeNames": [host],
        "Country": "XX",
        "State": "-",
        "City": "-",
        "Organization": "dpuplane",
        "OrganizationalUnit": "BMC",
        "KeyPairAlgorithm": "EC",
        "KeyCurveId": "prime256v1",
    }
    return Request("POST", f"{ROOT}/CertificateService/Actions/CertificateService.GenerateCSR", body)


def replacement(path: str, certificate: bytes) -> Request:
    """The request that replaces a certificate."""
    body: JSON = {
        "CertificateString": certificate.decode(),
        "CertificateType": "PEM",
        "CertificateUri": {"@odata.id": path},
    }
    return Request("POST", f"{ROOT}/CertificateService/Actions/CertificateService.ReplaceCertificate", body)


def names_host(certificate: x509.Certificate, host: str) -> bool:
    """Whether a certificate names the host by which the plane dials a device."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return _name(host) in names


def _name(host: str) -> x509.GeneralName:
    name = urlsplit(f"https://{host}").hostname or host
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def day_of(ends: datetime) -> str:
    """The day of the end of a certificate, as the fact of a DPU has it."""
    return f"{ends:%Y-%m-%d}"


def utc(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1_000, UTC)
