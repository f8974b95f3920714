"""Certificates for a bench: one authority, and a certificate for each process and client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from deploy.tls.authority import Authority
from projections.fleet.withdrawals.principals import Principal

HOSTS = ("127.0.0.1",)


class CertFiles(NamedTuple):
    """A certificate, its key, and the authority."""

    cert: Path
    key: Path
    ca: Path


def issue(folder: Path) -> dict[str, CertFiles]:
    """Certificates for a plane, an operator and a simulator, by those names."""
    now = datetime.now(UTC)
    authority = Authority.make(folder, "bench.example", now=now, valid=timedelta(days=1))
    issued = {}
    for role in ("plane", "operator", "simulator"):
        made = authority.issue(Principal(role, "bench"), hosts=HOSTS, now=now, valid=timedelta(days=1))
        issued[role] = CertFiles(made.cert, made.key, authority.cert)
    return issued
