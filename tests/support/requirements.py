"""What a test needs of the machine, and does not find."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

COMPLETE = "TESTS_COMPLETE"
"""Set by `.ci/run` once it has installed all that tests need."""


def missing_requirement(why: str) -> NoReturn:
    """Skip the test; but fail it where everything was installed, as a test that is skipped there proves nothing."""
    if os.environ.get(COMPLETE):
        pytest.fail(f"{why}; and {COMPLETE} says that all is there", pytrace=False)
    pytest.skip(why)
