"""Certificates of the plane for devices are short-lived, and renewed in time without a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from drivers.backends.bmc import NeedsOperator
from drivers.gnoi.client import host_of
from drivers.gnoi.credentials import COMMON_NAME, RENEW_BEFORE, VALID, IssuedCredentials
from tests.support.gnoi.service import identity_in

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_certificate_is_used_until_a_third_of_its_time_is_left(tmp_path: Path) -> None:
    now = NOW
    credentials = IssuedCredentials(identity_in(tmp_path).trust, lambda: int(now.timestamp() * 1_000))
    first = credentials()
    now = NOW + VALID - RENEW_BEFORE
    assert credentials() is first
    now += timedelta(seconds=1)
    second = credentials()
    assert second is not first
    assert credentials() is second
    assert credentials.issued == 2


def test_the_certificate_is_of_the_authority_for_clients_only_and_for_a_day(tmp_path: Path) -> None:
    authority = identity_in(tmp_path).trust
    pem, key = authority.issue_client(COMMON_NAME, NOW, VALID)
    certificate = x509.load_pem_x509_certificate(pem)
    assert authority.has_issued(certificate)
    assert certificate.not_valid_after_utc == NOW + timedelta(hours=24)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert b"PRIVATE KEY" in key


@pytest.mark.parametrize("host", ["10.0.0.1:9339", "dms.rack-1.example:9339", "[fd00::1]:9339"])
def test_an_address_names_a_host_and_a_port(host: str) -> None:
    assert host_of(f"gnoi://{host}") == host


@pytest.mark.parametrize(
    "address",
    [
        "gnoi://h",
        "gnoi://h:0",
        "gnoi://h:65536",
        "gnoi:///s:1",
        "gnoi://u@h:1",
        "gnoi://h:1/d",
        "redfish://h:1",
        "gnoi:h:1",
    ],
)
def test_another_address_needs_an_operator(address: str) -> None:
    with pytest.raises(NeedsOperator, match="must be gnoi://HOST:PORT"):
        host_of(address)
