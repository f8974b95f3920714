"""Test certificates, issued by a certificate authority in a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import grpc
from cryptography import x509

from deploy.cli.operations.certs import LOOPBACK
from deploy.tls.authority import Authority, Issued
from deploy.tls.certificates import Certificates
from projections.fleet.withdrawals.principals import PLANE, Principal

TRUST_DOMAIN = "test.example"
HOUR = timedelta(hours=1)


class CertFiles(NamedTuple):
    """The files of a certificate, its key and the authority that its bearer trusts."""

    cert: Path
    key: Path
    ca: Path

    @property
    def certificates(self) -> Certificates:
        return Certificates(*self)

    @property
    def expires_ms(self) -> int:
        """When the certificate expires. A relay whose clock a test has stopped shortly before ends a link soon after it
        opens, however long the machine takes to open it."""
        certificate = x509.load_pem_x509_certificate(self.cert.read_bytes())
        return int(certificate.not_valid_after_utc.timestamp() * 1_000)

    @property
    def channel(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), self.key.read_bytes(), self.cert.read_bytes())

    @property
    def flags(self) -> list[str]:
        """The TLS flags of a client command."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]

    @property
    def settings(self) -> dict[str, Path]:
        """The TLS settings of a process of the plane."""
        return {"tls_cert": self.cert, "tls_key": self.key, "tls_client_ca": self.ca}


class CertIssuer:
    """Issues certificates of a test's own authority."""

    def __init__(self, folder: Path, trust_domain: str = TRUST_DOMAIN, now: datetime | None = None) -> None:
        self.folder = folder
        self.authority = Authority.make(folder, trust_domain, now=now or datetime.now(UTC), valid=48 * HOUR)

    def issue(
        self, who: str, *hosts: str, valid: timedelta = HOUR, now: datetime | None = None, ca: Path | None = None
    ) -> CertFiles:
        """A certificate for `ROLE/NAME`. A certificate of a process of the plane names the loopback address."""
        role, _, name = who.partition("/")
        names = hosts or (LOOPBACK if role == PLANE else ())
        issued: Issued = self.authority.issue(
            Principal(role, name), hosts=names, now=now or datetime.now(UTC), valid=valid
        )
        return CertFiles(issued.cert, issued.key, ca or self.authority.cert)
