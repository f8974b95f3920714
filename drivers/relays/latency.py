"""A histogram of latencies with bounded size: its buckets are 2 % apart.

A percentile is within 1 % of the exact one. A change of a fleet yields hundreds of thousands of samples; a relay stores
only this histogram of them. HdrHistogram is more precise than needed and allocates its whole range up front.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

_GROWTH = math.log(1.02)


class LatencyHistogram:
    """A histogram of milliseconds."""

    __slots__ = ("_buckets", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.max_ms = 0
        self.sum_ms = 0

    def add(self, milliseconds: int, count: int = 1) -> None:
        """Add samples of one value. Negative values, from clocks that differ, count as 0."""
        milliseconds = max(0, milliseconds)
        self._buckets[round(math.log1p(milliseconds) / _GROWTH)] += count
        self.count += count
        self.sum_ms += milliseconds * count
        self.max_ms = max(self.max_ms, milliseconds)

    def quantile(self, share: float) -> float:
        """The latency that this share of the samples does not exceed; 0 without samples."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(float(self.max_ms), math.expm1(bucket * _GROWTH))
        return 0.0

    def within(self, bounds_ms: Sequence[float]) -> list[int]:
        """The number of samples up to each of these ascending bounds, within 1 %."""
        counts = [0] * (len(bounds_ms) + 1)
        for bucket, count in self._buckets.items():
            counts[bisect_left(bounds_ms, math.expm1(bucket * _GROWTH))] += count
        return list(accumulate(counts[:-1]))
