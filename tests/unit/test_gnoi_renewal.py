"""When the certificate of a management service is due for renewal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from drivers.gnoi.renewal import is_due
from tests.support.gnoi.service import identity_in

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("valid", "before_end"), [(365 * DAY, 30 * DAY), (3 * DAY, DAY + 2 * MINUTE), (30 * DAY, 10 * DAY + 2 * MINUTE)]
)
def test_a_certificate_is_due_within_30_days_and_a_third_of_its_time(
    tmp_path: Path, valid: timedelta, before_end: timedelta
) -> None:
    """The authority lets a certificate begin five minutes early, of which a third counts."""
    identity = identity_in(tmp_path)
    identity.serve(now=NOW, valid=valid)
    certificate = x509.load_pem_x509_certificate(identity.served.cert.read_bytes())
    assert not is_due(certificate, NOW + valid - before_end)
    assert is_due(certificate, NOW + valid - before_end + MINUTE)
