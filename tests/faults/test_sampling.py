"""Samples show the resources of a process, under the names that have a bound."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.sampling import resources_of
from tests.simulation.checkers import BOUNDS


def test_an_opened_file_is_counted(tmp_path: Path) -> None:
    before = dict(resources_of(os.getpid()))
    with (tmp_path / "more").open("w"):
        opened = dict(resources_of(os.getpid()))
    assert opened["open files"] == before["open files"] + 1
    assert opened.keys() <= BOUNDS.keys()


def test_memory_is_measured_in_mib() -> None:
    size = 64 << 20
    before = dict(resources_of(os.getpid()))["resident MiB"]
    taken = b"x" * size
    assert 50 < dict(resources_of(os.getpid()))["resident MiB"] - before < 100, len(taken)


def test_an_ended_process_has_no_samples() -> None:
    assert dict(resources_of(2**22 + 1)) == {}
