"""Samples of a process equal its resources, under the names that have a bound."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.sampling import held
from tests.simulation.checkers import BOUNDS


def test_a_file_that_is_opened_is_one_more(tmp_path: Path) -> None:
    before = dict(held(os.getpid()))
    with (tmp_path / "more").open("w"):
        opened = dict(held(os.getpid()))
    assert opened["open files"] == before["open files"] + 1
    assert opened.keys() <= BOUNDS.keys()


def test_memory_is_told_in_mib() -> None:
    size = 64 << 20
    before = dict(held(os.getpid()))["resident MiB"]
    taken = b"x" * size
    assert 50 < dict(held(os.getpid()))["resident MiB"] - before < 100, len(taken)


def test_of_a_process_that_has_ended_nothing_is_told() -> None:
    assert dict(held(2**22 + 1)) == {}
