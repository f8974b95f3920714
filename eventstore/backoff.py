"""Delays between retries: the ceiling doubles with each failure, up to a limit.

The delay is drawn at random below the ceiling (jitter), by a generator or, in a fold, by a hash. Without jitter,
callers that failed together would retry together. Retry libraries such as tenacity sleep by the wall clock and draw
from the global random generator. A simulation that uses them cannot be repeated.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", int, float)

_DOUBLINGS_MAX = 20


def backoff_ceiling(failures: int, first: T, longest: T) -> T:
    """The maximum delay: `first` before any failure, doubled by each failure, up to `longest`."""
    return min(longest, first * (1 << min(failures, _DOUBLINGS_MAX)))
