"""The seeds that every run of the tests simulates: the same few each time, and a few that nobody has seen before."""

from __future__ import annotations

import random

FAULTY_S = 40.0
KNOWN = (2, 4, 6, 12, 31, 204)
FRESH = random.SystemRandom().sample(range(10_000, 10**9), 3)
