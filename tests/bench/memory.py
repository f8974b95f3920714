"""The resident memory of a process and its growth; its CPU time and its open sockets."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import linear_regression

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

EVERY_S = 1.0
"""The interval of samples. Memory varies by some tens of megabytes with folds and flushes, so two samples alone would
not show its growth over minutes.
"""


def resident_bytes(pid: int | str = "self") -> int:
    """The resident memory of a process; of this one unless another is given."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_bytes(pid: int | str) -> int:
    """The largest resident memory of a process so far; `self` is this one."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


def open_sockets(pid: int | str) -> int:
    """The number of sockets that a process has open."""
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            count += str(each.readlink()).startswith("socket:")
    return count


def cpu_seconds(pid: int | str) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Growth:
    """Growth from creation to `end`: the slope of the least-squares line through all samples."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._bytes: list[int] = []
        self.per_item_bytes = self.percent_a_minute = 0.0
        self._sample()

    def look(self) -> None:
        """Take a sample, if one is due."""
        if time.perf_counter() >= self._at_s[-1] + EVERY_S:
            self._sample()

    def end(self, items: int) -> None:
        """Finish; so many items were processed meanwhile."""
        self._sample()
        took_s = self._at_s[-1] - self._at_s[0]
        line = linear_regression(self._at_s, self._bytes)
        self.per_item_bytes = line.slope * took_s / items
        self.percent_a_minute = 100 * line.slope * 60 / (line.slope * self._at_s[0] + line.intercept)

    def _sample(self) -> None:
        self._at_s.append(time.perf_counter())
        self._bytes.append(resident_bytes())
