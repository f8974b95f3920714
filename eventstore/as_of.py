"""The point in the past of an as-of query: the position of an earlier answer, or a time.

`eventstore.recovery.cuts` finds the offsets at which a point cuts a log. Parsing is in this module, because every
client command parses and prints times, and importing the modules that read a log takes 0.3 s (numpy and fastavro).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TypeAlias

from eventstore.errors import PermanentError
from eventstore.position import InvalidPosition, check_token

AsOf: TypeAlias = str | int
"""The token of a position, or milliseconds since the epoch."""

_SHOWN_MS_MAX = 253_402_300_799_000
_TEXT_SHOWN = 80
_DIGITS_MAX = 18
"""Maximum number of digits of a time from a caller. Python refuses to convert much longer numbers, and no log contains
such a time.
"""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)")
_DURATION = re.compile(f"(?:{_PART.pattern}){{1,6}}")


def parse_as_of(text: str) -> AsOf:
    """Parse a user's position or time. Raises PermanentError."""
    if ":" in text and "=" in text:
        _check_token(text)
        return text
    time_ms = parse_time(text)
    if time_ms is None:
        raise PermanentError(
            f"as_of: {text[:_TEXT_SHOWN]!r} must be the position of an answer, a time in ISO 8601, or milliseconds"
        )
    return time_ms


def _check_token(text: str) -> None:
    try:
        check_token(text)
    except InvalidPosition as error:
        raise PermanentError(f"as_of: {error}") from error


def parse_time(text: str) -> int | None:
    """Parse a time: milliseconds since the epoch, or ISO 8601 (UTC by default). None if the text is not a time."""
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= _DIGITS_MAX else None
    try:
        as_of = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)).timestamp() * 1_000)


def parse_duration(text: str) -> int | None:
    """Milliseconds of a duration such as 90s, 10m or 1h30m; None if it is not a duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(text))


def format_time(time_ms: int) -> str:
    """Format a time in ISO 8601; a time outside the calendar's range as a number of milliseconds."""
    if not 0 <= time_ms <= _SHOWN_MS_MAX:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_not_in_future(as_of: AsOf, now_ms: int) -> None:
    """Raise PermanentError if this is a time in the future."""
    if isinstance(as_of, int) and as_of > now_ms:
        raise PermanentError(f"as_of: {format_time(as_of)} is in the future: this host's time is {format_time(now_ms)}")
