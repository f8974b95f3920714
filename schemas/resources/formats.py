"""Formats of strings that the API server checks in custom resources."""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Mapping

_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_DURATION = re.compile(r"[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")


def is_of_format(name: str, text: str) -> bool:
    """Whether a text has a format. Every text has a format that is unknown here, as at the API server."""
    check = _CHECKS.get(name)
    return check is None or check(text)


def _is_date_time(text: str) -> bool:
    date, separator, time = text.lower().partition("t")
    match = _TIME.fullmatch(time)
    if not separator or match is None:
        return False
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        return False
    return int(match[1]) < 24 and int(match[2]) < 60 and int(match[3]) < 60


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text) is not None


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "date-time": _is_date_time,
    "ipv4": _is_ipv4,
    "duration": _is_duration,
}
