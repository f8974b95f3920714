"""Prints the random seeds of the run, also after success, so that each run can be repeated."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import FAULTY_S, FRESH


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    ran = any("test_a_fresh_seed[" in report.nodeid for report in reports)
    if ran:
        terminalreporter.write_line(
            f"simulated fresh seeds {', '.join(map(str, FRESH))}; repeat one with:"
            f" python -m tests.simulation --seed {FRESH[0]} --seconds {FAULTY_S:g}"
        )
