"""Durations in specs, as Go writes them."""

from __future__ import annotations

import re

_CHARACTERS_MAX = 100
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3, "h": 3_600e3}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def duration_ms(text: str) -> int | None:
    """The milliseconds of a duration such as 1h30m or 1.5h; None for any other text."""
    if text == "0":
        return 0
    if len(text) > _CHARACTERS_MAX or not _DURATION.fullmatch(text):
        return None
    return int(sum(float(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text)))
