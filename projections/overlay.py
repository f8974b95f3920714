"""A mapping that stores its own changes over another mapping, which stays unchanged.

A fold decides each item of a record on the state after the items before it, but `decide` must not change the state. The
cost of an overlay grows with the changed keys, not with the size of the mapping below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TypeVar

V = TypeVar("V")


class Overlay(MutableMapping[str, V]):
    """A mapping over `base` that stores its own changes. Added keys come after those of `base`, as in a dict. `copy`,
    if given, copies a value of `base` at its first read, so that the caller may mutate the copy."""

    __slots__ = ("_base", "_copy", "_put", "_removed", "_size")

    def __init__(self, base: Mapping[str, V], copy: Callable[[V], V] | None = None) -> None:
        self._base = base
        self._copy = copy
        self._put: dict[str, V] = {}
        self._removed: set[str] = set()
        self._size = len(base)

    def __getitem__(self, key: str) -> V:
        if key in self._put:
            return self._put[key]
        if key in self._removed:
            raise KeyError(key)
        value = self._base[key]
        if self._copy is not None:
            value = self._put[key] = self._copy(value)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._put or (key in self._base and key not in self._removed)

    def __setitem__(self, key: str, value: V) -> None:
        self._size += key not in self
        self._put[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._size -= 1
        self._put.pop(key, None)
        if key in self._base:
            self._removed.add(key)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._removed)
        yield from (key for key in self._put if key not in self._base or key in self._removed)

    def __len__(self) -> int:
        return self._size
