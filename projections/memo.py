"""Caches of the results of pure functions of immutable values. A cache is not part of a fold's state: it changes the
speed of a fold, and no decision."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memo(Generic[Key, Value]):
    """Cached results by argument, at most `most` of them. A full cache is cleared."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Key, compute: Callable[[Key], Value]) -> Value:
        """The result for this argument."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[key] = compute(key)
        return found
