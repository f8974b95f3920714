"""What a process holds in memory now, and by how much that grows."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


class Growth:
    """From when it is made until its end."""

    def __init__(self) -> None:
        self.began_bytes = resident_bytes()
        self._began_s = time.perf_counter()
        self.grown_bytes = 0
        self.per_item_bytes = self.percent_a_minute = 0.0

    def end(self, items: int) -> None:
        """So many items have been done meanwhile."""
        minutes = (time.perf_counter() - self._began_s) / 60
        self.grown_bytes = resident_bytes() - self.began_bytes
        self.per_item_bytes = self.grown_bytes / items
        self.percent_a_minute = 100 * self.grown_bytes / self.began_bytes / minutes
