"""Requirements of a test that the machine does not meet."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

COMPLETE = "TESTS_COMPLETE"
"""The variable that `.ci/run` sets after it has installed all requirements of the tests."""


def missing_requirement(why: str) -> NoReturn:
    """Skip the test, or fail it where every requirement was installed: a skipped test proves nothing there."""
    if os.environ.get(COMPLETE):
        pytest.fail(f"{why}; and {COMPLETE} says that all is there", pytrace=False)
    pytest.skip(why)
