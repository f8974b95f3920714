"""How many agents may open a link per second, and when the others should come back.

A relay that restarts finds a thousand agents at its door at once. Taking them all at once makes every handshake slow,
times some out, and they come back (Istio's herds took minutes). So they are taken at a steady rate, and each one sent
away is told a time of its own: the next free place in line, with jitter.
"""

from __future__ import annotations

import random
from collections.abc import Callable

ADVICE_S_MAX = 30.0


class LinkAdmission:
    """A token bucket whose refusals are spread over the time that it takes to serve them."""

    def __init__(self, per_second: float, burst: int, *, now: Callable[[], float], rng: random.Random) -> None:
        self.refused = 0
        self._interval_s = 1.0 / per_second
        self._burst_s = burst * self._interval_s
        self._now = now
        self._rng = rng
        self._taken_until = 0.0
        self._told_until = 0.0

    def admit(self) -> float:
        """0 for come in; else the seconds after which to come back."""
        now = self._now()
        taken_until = max(self._taken_until, now) + self._interval_s
        if taken_until - now <= self._burst_s + 1e-9:  # sums of fractions
            self._taken_until = taken_until
            return 0.0
        self.refused += 1
        self._told_until = min(max(self._told_until, taken_until) + self._interval_s, now + ADVICE_S_MAX)
        return (self._told_until - now) * self._rng.uniform(0.75, 1.25)
