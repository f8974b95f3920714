"""A certificate that a process signs itself, for a listener without other certificates.

It encrypts, and lets clients that know the file recognize the process. BMCs that verify certificates need one of an
authority that they trust: give `tls_cert`.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deploy.atomic_files import atomic_write

VALID = timedelta(days=3650)
_CLOCKS_DIFFER = timedelta(days=1)


def self_signed(folder: Path, hosts: Sequence[str], now: datetime) -> tuple[Path, Path]:
    """The certificate and key in a folder. They are made anew if they do not exist, do not name all hosts or expire
    soon."""
    cert, key = folder / "tls.pem", folder / "tls.key"
    if not (cert.exists() and key.exists() and _serves(cert, hosts, now)):
        private = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dpuplane image store")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS_DIFFER)
            .not_valid_after(now + VALID)
            .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(private, hashes.SHA256())
        )
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        with atomic_write(key, mode=0o600) as fresh:
            fresh.write_bytes(private.private_bytes(encoding, form, serialization.NoEncryption()))
        with atomic_write(cert, mode=0o644) as fresh:
            fresh.write_bytes(certificate.public_bytes(encoding))
    return cert, key


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """The TLS context of a listener that asks clients for no certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def _serves(cert: Path, hosts: Sequence[str], now: datetime) -> bool:
    try:
        found = x509.load_pem_x509_certificate(cert.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return found.not_valid_after_utc > now + VALID / 10 and all(_name(host) in names for host in hosts)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
