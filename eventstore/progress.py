"""Progress of a long fold: for callers that ask, and as a log line every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from eventstore.log import Partition

_REPORT_EVERY_S = 5.0

ReportProgress = Callable[[str, float], None]
"""Callback, called often, with the present step in words and the completed share, from 0 to 1."""

logger = logging.getLogger(__name__)


class Progress:
    """Progress of partitions towards their targets. The folding task adds to `records`, and to `bytes` if it counts
    them.
    """

    def __init__(
        self,
        starts: Mapping[Partition, int],
        targets: Mapping[Partition, int],
        now_s: float,
        report_to: ReportProgress | None = None,
    ) -> None:
        self._report_to = report_to
        self.records = 0
        self.bytes = 0
        self._starts = dict(starts)
        self._targets = dict(targets)
        self._began_s = self._reported_s = now_s

    def behind(self, positions: Mapping[Partition, int]) -> list[Partition]:
        """The partitions that have not reached their targets. A partition without a position does not count."""
        return [p for p, target in self._targets.items() if positions.get(p, target) < target]

    def percent(self, positions: Mapping[Partition, int]) -> float:
        """The completed share in percent."""
        todo = sum(max(0, target - self._starts[p]) for p, target in self._targets.items())
        left = sum(max(0, target - positions.get(p, target)) for p, target in self._targets.items())
        return 100.0 * (todo - left) / todo if todo else 100.0

    def seconds(self, now_s: float) -> float:
        """Seconds since the start."""
        return now_s - self._began_s

    def report(self, positions: Mapping[Partition, int], now_s: float) -> None:
        """Write a log line every few seconds, and call the callback."""
        if self._report_to is not None:
            self._report_to(f"{self.records:,} records", self.percent(positions) / 100)
        if now_s - self._reported_s < _REPORT_EVERY_S:
            return
        self._reported_s = now_s
        rate = self.records / self.seconds(now_s)
        about = {"percent": f"{self.percent(positions):.1f}", "records": self.records, "per_second": round(rate)}
        logger.info("log partly folded", extra=about)
