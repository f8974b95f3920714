"""Ranges of versions, as authors of Helm charts write them: `>=2.9.0 <4`, `~3.1`, `^2.9 || 3.x`, `2.9 - 3.1`.

The grammar and its meaning are those of the library that DPF checks versions with (Masterminds/semver), but for
pre-releases: `3.1.0-rc1` counts as 3.1.0. Version 2.9 of a range stands for 2.9.0 to 2.9.9, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

Version = tuple[float, ...]
"""Three numbers."""

_SUFFIX = r"(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_NUMBER = r"([0-9]{1,9})"
_VERSION = re.compile(rf"v?{_NUMBER}(?:\.{_NUMBER})?(?:\.{_NUMBER})?{_SUFFIX}")
_PART = r"([0-9]{1,9}|[xX*])"
_PARTS = rf"v?{_PART}(?:\.{_PART})?(?:\.{_PART})?{_SUFFIX}"
_COMPARISON = re.compile(rf"(=|!=|>=|=>|<=|=<|>|<|~>|~|\^)?\s*{_PARTS}(?:\s*,\s*|\s+|$)")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
_SYNONYMS = {"": "=", "=>": ">=", "=<": "<=", "~>": "~"}
_SIZE_MAX = 256


class _Interval(NamedTuple):
    """The versions from `low` to below `high`, or with `is_outside` all others."""

    low: Version
    high: Version
    is_outside: bool = False

    def has(self, version: Version) -> bool:
        return (self.low <= version < self.high) != self.is_outside


class VersionRange(NamedTuple):
    """The versions that are in each interval of any alternative."""

    alternatives: tuple[tuple[_Interval, ...], ...]

    def has(self, version: Version) -> bool:
        return any(all(each.has(version) for each in intervals) for intervals in self.alternatives)


def version(text: str) -> Version | None:
    """The version in a text; None if it is none. Missing numbers are 0."""
    found = _VERSION.fullmatch(text.strip())
    return tuple(int(each or 0) for each in found.groups()) if found else None


def version_range(text: str) -> VersionRange | None:
    """The range in a text; None if it is none."""
    if len(text) > _SIZE_MAX:
        return None
    found = []
    for alternative in text.split("||"):
        intervals = tuple(_intervals(_HYPHEN.sub(r">=\1 <=\2", alternative.strip())))
        if not intervals or None in intervals:
            return None
        found.append(tuple(each for each in intervals if each is not None))
    return VersionRange(tuple(found))


def _intervals(text: str) -> Iterator[_Interval | None]:
    """The intervals of comparisons that all hold; None where a text is no comparison."""
    start = 0
    while start < len(text):
        found = _COMPARISON.match(text, start)
        if found is None:
            yield None
            return
        operator, *parts = found.groups()
        numbers: list[int] = []
        for part in parts:
            if part is None or not part.isdigit():
                break
            numbers.append(int(part))
        yield _interval(_SYNONYMS.get(operator or "", operator), numbers)
        start = found.end()


def _interval(operator: str, numbers: list[int]) -> _Interval:
    given = len(numbers)
    zero: Version = (0, 0, 0)
    first: Version = (*numbers, *zero[given:])
    after = _after(numbers, given)
    if operator in ("=", "!="):
        return _Interval(first, after, is_outside=operator == "!=")
    if operator == "~":
        return _Interval(first, _after(numbers, min(given, 2)))
    if operator == "^":
        return _Interval(first, _after(numbers, next((at for at, each in enumerate(numbers, 1) if each), given)))
    return {
        ">": _Interval(after, (inf,)),
        ">=": _Interval(first, (inf,)),
        "<": _Interval(zero, first),
        "<=": _Interval(zero, after),
    }[operator]


def _after(numbers: list[int], count: int) -> Version:
    """The first version after all that begin with these numbers, of which `count` count."""
    if count == 0:
        return (inf,)
    zero: Version = (0, 0, 0)
    return (*numbers[: count - 1], numbers[count - 1] + 1, *zero[count:])
