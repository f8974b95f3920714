"""Fuzz for a few seconds with a random seed. A finding is printed with the seed and the input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = 2


def test_a_few_seconds_of_fuzzing_find_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has wheels only for Linux on x86-64 and Python up to 3.13")
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(SECONDS), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for name in TARGETS:
        assert name in done.stdout
