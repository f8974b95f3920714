"""A few seconds of fuzzing with a fresh seed; a finding is printed with the seed and the input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = 2


def test_some_seconds_of_fuzzing_find_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="it has wheels for Linux on x86-64 and Python up to 3.13 only")
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(SECONDS), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for name in TARGETS:
        assert name in done.stdout
