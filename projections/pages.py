"""Pagination of lists. Pages list keys in order of partition, then of key, so one page reads the keys of one partition,
not of all.

A page token names the last key of the page before and its partition. A key that is added or removed between two pages
may be missing or present; every other key appears exactly once.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from eventstore.errors import PermanentError

MAX_PAGE = 1_000
DEFAULT_PAGE = 200
COMPARED_MAX = 2_000
"""Maximum number of keys that one page compares with a selector."""

_TOKEN = re.compile(r"(\d{1,6}):(.{0,1024})", re.DOTALL)
"""The key of an object of a custom resource has up to 889 characters."""


class BadPage(PermanentError):
    """An invalid page size, or a token that no page returned."""


class Page(NamedTuple):
    """Keys with their partitions, and the token of the next page (empty at the end)."""

    keys: list[tuple[int, str]]
    next_token: str

    def within(self, most: int, size_of: Callable[[int, str], int]) -> Page:
        """The leading keys whose total size is at most `most`, and always the first key. The next page begins after
        them."""
        sizes = accumulate(size_of(number, key) for number, key in self.keys)
        count = max(1, sum(size <= most for size in sizes))
        return Page(self.keys[:count], self.token_after(count))

    def token_after(self, count: int) -> str:
        """The token of a page that begins after the first `count` keys."""
        if count >= len(self.keys):
            return self.next_token
        number, key = self.keys[count - 1]
        return f"{number}:{key}"


def page(
    partitions: Sequence[int],
    keys_of: Callable[[int], Iterable[str]],
    size: int,
    token: str,
    matches: Callable[[int, str], bool] | None = None,
) -> Page:
    """The next page of matching keys after `token`. `partitions` must be in ascending order. Raises BadPage.

    With `matches`, a page ends after COMPARED_MAX comparisons, however few keys matched: a selector that few of a
    million nodes match would otherwise block the event loop for a second.
    """
    wanted = _size(size)
    most = wanted if matches is None else COMPARED_MAX
    first, after = _parse(token)
    found: list[tuple[int, str]] = []
    read, last = 0, (first, after)
    for number in partitions:
        if number < first:
            continue
        begin = after if number == first else ""
        for key in heapq.nsmallest(most + 1 - read, (key for key in keys_of(number) if key > begin)):
            if read == most or len(found) == wanted:
                return Page(found, f"{last[0]}:{last[1]}")
            read, last = read + 1, (number, key)
            if matches is None or matches(number, key):
                found.append(last)
    return Page(found, "")


def _size(size: int) -> int:
    if not 0 <= size <= MAX_PAGE:
        raise BadPage(f"page_size: {size} must be from 0 (the default, {DEFAULT_PAGE}) to {MAX_PAGE}")
    return size or DEFAULT_PAGE


def _parse(token: str) -> tuple[int, str]:
    if not token:
        return 0, ""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise BadPage(f"page_token: {token[:40]!r} must be the next_page_token of the previous page")
    return int(match[1]), match[2]
