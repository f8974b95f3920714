"""The random seeds of a run of the tests: the same in all its processes, and printed at its end, so that a run can be
repeated.
"""

from __future__ import annotations

import os
import random

import pytest

VARIABLE = "TESTS_FRESH_SEEDS"
"""The seeds of a run, separated by commas; set it to repeat a run."""
COUNT = 3

os.environ.setdefault(VARIABLE, ",".join(map(str, random.SystemRandom().sample(range(10_000, 10**9), COUNT))))
FRESH = tuple(map(int, os.environ[VARIABLE].split(",")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    if any("test_a_fresh_seed[" in report.nodeid for report in reports):
        terminalreporter.write_line(f"simulated fresh seeds; repeat them with {VARIABLE}={os.environ[VARIABLE]}")
