"""Fixtures of the management service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gnoi.service import Identity, identity_in
from tests.support.kubernetes.build import program


@pytest.fixture(scope="session")
def gnoi_peer() -> Path:
    """The program of the management service, which is built first if the cache lacks it."""
    return program("gnoi-peer")


@pytest.fixture
def gnoi_identity(gnoi_peer: Path, tmp_path: Path) -> Identity:
    """An authority of a test, and the certificate of its management service."""
    return identity_in(tmp_path / "authority")
