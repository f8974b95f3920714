"""Tests notice every mutant of a few modules, and an unnoticed mutant is reported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutation import nearby
from tests.mutation.explained import reasons, stale_explanations
from tests.mutation.mutants import ROOT, mutants_of
from tests.mutation.report import interval

NUMBERING, POSITION, PAGES = "drivers/relays/numbering.py", "eventstore/position.py", "projections/pages.py"


def mutate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)


def test_every_mutant_of_well_tested_modules_is_noticed() -> None:
    tests = [f"tests/unit/test_{name}.py" for name in ("numbering", "position", "pages")]
    ended = mutate("--at-least", "1", NUMBERING, POSITION, PAGES, "--tests", *tests)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{NUMBERING:<22}" in ended.stdout


def test_an_unnoticed_mutant_is_printed_and_fails() -> None:
    ended = mutate(NUMBERING, "--tests", "tests/unit/test_numbering.py::test_a_dpu_named_again_keeps_its_number")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "for name, ordinal, now in known if ordinal in (_NONE, now)" in ended.stdout
    assert "the score is below 95%" in ended.stdout


def test_every_explanation_matches_a_mutant() -> None:
    known = reasons()
    mutants = [mutant for path in sorted({key[0] for key in known}) for mutant in mutants_of(path)]
    assert stale_explanations(known, mutants) == []


def test_every_checker_has_tests_near_it() -> None:
    checkers = [path for path in nearby.pure_modules() if path.startswith("tests/")]
    assert checkers
    assert [path for path in checkers if not nearby.tests_near([path])] == []


@pytest.mark.parametrize(
    ("noticed", "drawn", "low", "high"), [(95, 100, 0.888, 0.978), (0, 10, 0.0, 0.278), (0, 0, 0, 1)]
)
def test_a_sample_has_a_confidence_interval(noticed: int, drawn: int, low: float, high: float) -> None:
    """The bounds are examples of Wilson's interval from textbooks."""
    assert interval(noticed, drawn) == pytest.approx((low, high), abs=0.001)
