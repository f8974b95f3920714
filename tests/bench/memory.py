"""The resident memory of a process, and its growth."""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import linear_regression

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

EVERY_S = 1.0
"""The interval of samples. Memory varies by some tens of megabytes with folds and flushes, so two samples alone would
not show its growth over minutes.
"""


def resident_bytes() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_bytes(pid: int) -> int:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


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
