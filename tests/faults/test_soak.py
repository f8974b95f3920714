"""The failures of a soak, including a turn that hangs and prints nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.soak import Soak, Turn


def test_the_output_of_a_turn_that_hangs_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.soak.END_S", 0.5)
    soak = Soak(tmp_path)
    soak.take(Turn("hanging", "timeit", ("-s", "import time", "time.sleep(3600)"), minutes=0))
    assert soak.parts["hanging"].failed == 1
    [kept] = soak.kept
    assert "still running after 0.5 s" in kept.read_text()
    assert "repeat with: -m timeit" in kept.read_text()


def test_a_successful_turn_leaves_no_file(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    soak.take(Turn("short", "timeit", ("-n", "1", "pass")))
    assert (soak.parts["short"].failed, soak.kept, [*tmp_path.iterdir()]) == (0, [], [])


def test_the_output_of_a_failed_turn_is_kept(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    soak.take(Turn("failing", "timeit", ("-n", "1", "1 / 0")))
    assert soak.parts["failing"].failed == 1
    assert "ZeroDivisionError" in soak.kept[0].read_text()
