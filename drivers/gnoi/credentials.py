"""The certificates with which the plane and the management services of DPUs recognize each other.

With the key of the authority, a process issues itself a certificate that lasts for a day, and renews it in memory eight
hours before its end (DPF's durations). Without the key, it reads a certificate and its key from files, anew for each
attempt, as another program renews them there. Either way an open connection keeps what it began with.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grpc

from drivers.backends.bmc import NeedsOperator
from drivers.redfish.certificates import BmcAuthority, utc

VALID = timedelta(hours=24)
RENEW_BEFORE = timedelta(hours=8)
COMMON_NAME = "dpuplane"

CredentialsOf: TypeAlias = Callable[[], grpc.ChannelCredentials]
"""The credentials for a new connection. Raises NeedsOperator."""


class ClientFiles(NamedTuple):
    """The files with a certificate of the plane and its key, in PEM."""

    cert: Path
    key: Path


class _Issued(NamedTuple):
    credentials: grpc.ChannelCredentials
    ends: datetime


class IssuedCredentials:
    """Credentials with a certificate that the authority issues to this process. `issued` counts certificates."""

    def __init__(self, authority: BmcAuthority, now_ms: Callable[[], int]) -> None:
        self.issued = 0
        self._authority = authority
        self._now_ms = now_ms
        self._newest: _Issued | None = None

    def __call__(self) -> grpc.ChannelCredentials:
        now = utc(self._now_ms())
        if self._newest is None or self._newest.ends - now < RENEW_BEFORE:
            cert, key = self._authority.issue_client(COMMON_NAME, now, VALID)
            credentials = grpc.ssl_channel_credentials(self._authority.pem, key, cert)
            self._newest = _Issued(credentials, now + VALID)
            self.issued += 1
        return self._newest.credentials


class FileCredentials:
    """Credentials with a certificate in files."""

    def __init__(self, authority: BmcAuthority, files: ClientFiles) -> None:
        self._authority = authority
        self._files = files

    def __call__(self) -> grpc.ChannelCredentials:
        try:
            cert, key = self._files.cert.read_bytes(), self._files.key.read_bytes()
        except OSError as error:
            raise NeedsOperator(f"bmc_client_cert: {error.filename} cannot be read: {error.strerror}") from error
        return grpc.ssl_channel_credentials(self._authority.pem, key, cert)


def no_credentials() -> grpc.ChannelCredentials:
    """The credentials of a process without an authority of BMCs."""
    raise NeedsOperator(
        "certificate: gNOI needs the settings bmc_ca, and bmc_ca_key or bmc_client_cert with bmc_client_key"
    )
