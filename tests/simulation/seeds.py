"""The seeds of every test run: a few pinned ones, and a few random ones."""

from __future__ import annotations

import random

FAULTY_S = 40.0
KNOWN = (2, 4, 6, 12, 31, 204)
FRESH = random.SystemRandom().sample(range(10_000, 10**9), 3)
