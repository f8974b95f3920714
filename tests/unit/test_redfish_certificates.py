"""The authority of BMCs, and what a process remembers of their certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from deploy.process.redfish import open_redfish
from deploy.settings.settings import load_settings
from deploy.tls.authority import Authority
from drivers.provisioning.device import no_url
from drivers.redfish.certificates import PINNED_MAX, BmcAuthority, PresentedCertificates
from eventstore.errors import FatalError
from eventstore.replicas.replica import Replica


def test_the_last_certificate_of_each_bmc_is_known() -> None:
    presented = PresentedCertificates()
    assert presented.of("a:443") is None
    presented.keep("a:443", b"first")
    presented.keep("b:443", b"other")
    presented.keep("a:443", b"second")
    assert (presented.of("a:443"), presented.of("b:443")) == (b"second", b"other")


def test_the_bmcs_that_were_looked_at_last_are_known() -> None:
    presented = PresentedCertificates()
    for number in range(PINNED_MAX):
        presented.keep(str(number), b"")
    presented.keep("0", b"again")
    presented.keep("new", b"")
    assert [presented.of(host) for host in ("0", "1", "2", "new")] == [b"again", None, b"", b""]


def test_a_file_that_is_no_certificate_or_no_key_is_refused_under_the_name_of_its_setting(tmp_path: Path) -> None:
    made = Authority.make(tmp_path, "example.org", now=datetime(2026, 1, 1, tzinfo=UTC), valid=timedelta(days=1))
    with pytest.raises(FatalError, match=r"^bmc_ca: it must be a certificate, in PEM$"):
        BmcAuthority(b"junk")
    with pytest.raises(FatalError, match=r"^bmc_ca_key: it must be an unencrypted key, in PEM$"):
        BmcAuthority(made.cert.read_bytes(), b"junk")


@pytest.mark.parametrize("setting", ["bmc_password_file", "bmc_ca", "bmc_ca_key"])
async def test_a_process_whose_file_is_missing_does_not_start_and_names_the_setting(
    tmp_path: Path, setting: str
) -> None:
    made = Authority.make(tmp_path, "example.org", now=datetime(2026, 1, 1, tzinfo=UTC), valid=timedelta(days=1))
    files = {"bmc_ca": str(made.cert), setting: str(tmp_path / "missing")}
    settings = load_settings({"data": str(tmp_path / "plane"), **files}, None, {})
    unused = cast(Replica, None)  # the files are read before anything else
    opening = open_redfish(
        settings, unused, no_url, seed_of=no_url, firmware_of=None, apis=lambda source: None, now_ms=lambda: 0
    )
    with pytest.raises(FatalError, match=rf"^{setting}: .*/missing cannot be read: No such file or directory$"):
        async with opening:
            pass
