"""Fixtures of the mock of a BMC."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kubernetes.build import program


@pytest.fixture(scope="session")
def bmc_mock() -> Path:
    """The program of the mock, which is built first if the cache lacks it."""
    return program("bmc-mock")
