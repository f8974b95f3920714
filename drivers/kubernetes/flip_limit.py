"""Limits how often flipped conditions of one object are written at once."""

from __future__ import annotations

from collections import deque

FLIPS_MAX = 10
"""Maximum number of writes at once per object and WINDOW_S."""
WINDOW_S = 60.0
OBJECTS_MAX = 10_000
"""Maximum number of objects whose flips are remembered. At this limit, the flips of all objects are forgotten."""


class FlipLimit:
    """Counts the flips of each object. A flip is known by the version of the object that it changes, so a repeated
    write counts once."""

    def __init__(self) -> None:
        self._flips: dict[str, deque[tuple[int, float]]] = {}
        self._refused: set[str] = set()

    def take(self, name: str, version: int, now_s: float) -> bool:
        """Whether a flip of this version may be written at once; counts it if so."""
        if name not in self._flips and len(self._flips) >= OBJECTS_MAX:
            self._flips.clear()
            self._refused.clear()
        flips = self._flips.setdefault(name, deque(maxlen=FLIPS_MAX))
        if flips and flips[-1][0] == version:
            return True
        if len(flips) == FLIPS_MAX and flips[0][1] > now_s - WINDOW_S:
            return False
        self._refused.discard(name)
        flips.append((version, now_s))
        return True

    def is_first_refusal(self, name: str) -> bool:
        """Whether this is the first refusal since the last flip that was allowed."""
        is_first = name not in self._refused
        self._refused.add(name)
        return is_first
