"""A certificate authority for development and tests: a key and a certificate in a folder, and the certificates it
signs.

In production the certificates come from elsewhere (SPIRE, cert-manager, Vault). Each needs one URI name,
`spiffe://TRUST_DOMAIN/ROLE/NAME`; no other field counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from commands.rpc.authentication import uri_names
from deploy.atomic_files import atomic_write
from eventstore.errors import PermanentError
from projections.fleet.withdrawals.principals import Principal, trust_domain_of, uri_of

CA_CERT, CA_KEY = "ca.pem", "ca.key"
CLOCKS_DIFFER = timedelta(minutes=5)


class BadAuthority(PermanentError):
    """The folder holds no authority, or already holds one."""


class Issued(NamedTuple):
    """The paths of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates of one trust domain. Files are written to its folder; keys are readable by their owner
    only.
    """

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.folder = folder
        self.cert = folder / CA_CERT
        self.trust_domain = trust_domain_of(next(iter(uri_names(certificate)), ""))
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, folder: Path, trust_domain: str, *, now: datetime, valid: timedelta) -> Authority:
        """Create an authority in a folder without one. Raises PermanentError."""
        if (folder / CA_KEY).exists() or (folder / CA_CERT).exists():
            raise BadAuthority(f"{folder}: holds an authority already; give another folder, or delete it first")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise BadAuthority(f"{folder}: cannot be created: {error.strerror}") from error
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{trust_domain} authority"[:64])])
        builder = _builder(name, name, key.public_key(), now, valid)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        uri = x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")
        builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        certificate = builder.sign(key, hashes.SHA256())
        _write_key(folder / CA_KEY, key)
        _write(folder / CA_CERT, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return cls(folder, key, certificate)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """Open the authority of a folder. Raises BadAuthority."""
        try:
            key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate((folder / CA_CERT).read_bytes())
        except OSError as error:
            raise BadAuthority(f"{error.filename}: {error.strerror}; create one with `dpuplane certs init`") from error
        except (ValueError, TypeError) as error:
            raise BadAuthority(f"{folder}: holds no readable authority: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadAuthority(f"{folder / CA_KEY}: must be an elliptic-curve key")
        return cls(folder, key, certificate)

    def issue(self, principal: Principal, *, hosts: Sequence[str], now: datetime, valid: timedelta) -> Issued:
        """Issue a certificate with a new key. `hosts` are the names by which clients dial the servers of this
        process.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(principal)[:64])])
        builder = _builder(subject, self._certificate.subject, key.public_key(), now, valid)
        names = [x509.UniformResourceIdentifier(uri_of(self.trust_domain, principal)), *map(_host, hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(uses, critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = str(principal).replace("/", "@")
        issued = Issued(self.folder / f"{stem}.pem", self.folder / f"{stem}.key")
        _write_key(issued.key, key)
        _write(issued.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return issued


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, valid: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write(path, key.private_bytes(encoding, form, serialization.NoEncryption()), 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write atomically: a process that watches the file must not read half of it, and no other user may read a key."""
    with atomic_write(path, mode=mode) as fresh:
        fresh.write_bytes(content)
