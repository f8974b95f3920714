"""An index from names to numbers for bulk operations: names are looked up and added as columns.

A dict looks up one name after the other and waits for memory each time. Here a few numpy passes look up or add whole
columns, and their reads overlap: half of the time for a million names. A single name takes some microseconds.

The table has 64-bit entries and linear probing (Knuth, The Art of Computer Programming, volume 3, 6.4, algorithm L). An
entry is the name's number and a tag: the upper bits of the name's hash, which also determine its home slot. The table
does not store names: the callbacks `name_of` and `names_of` return them, which resolves hash collisions. The layout
differs from process to process, and no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Places = NDArray[np.intp]

UNKNOWN = -1
"""The number of a name that is not in the index."""

_NUMBER_BITS = 32
_NUMBER = (1 << _NUMBER_BITS) - 1
_WORD = (1 << 64) - 1
_REMOVED = 1
_FIRST = 2
"""The encoding of number 0 in an entry. An entry of 0 is a free slot, and an entry of 1 a removed name."""

_LEAST_BITS = 10
_ROOM = 4
"""Minimum number of slots per entry. Fewer slots would save memory but make probe sequences longer, and a lookup of a
thousand names takes about as long as the longest of their sequences."""

_FEW = 24
"""Up to this many names, Python is faster than numpy."""


class Lookup(NamedTuple):
    """Names that were looked up: the number of each, its hash, and the slot that its probe sequence has reached."""

    numbers: Numbers
    hashes: Hashes
    places: Places

    def is_empty(self) -> bool:
        """Whether none of the names is in the index."""
        return not (self.numbers != UNKNOWN).any()


class NameIndex:
    """Numbers below 2**32 - 2 by name; `name_of` and `names_of` return the name that a number was added for."""

    def __init__(
        self, name_of: Callable[[int], str | None], names_of: Callable[[Numbers], Sequence[str | None]]
    ) -> None:
        self._name_of = name_of
        self._names_of = names_of
        self._resize(_LEAST_BITS, np.empty(0, np.uint64))

    def find(self, names: Sequence[str]) -> Lookup:
        """Look up these names; the number of a name that is not in the index is UNKNOWN."""
        hashes = _hashes_of(names)
        places = self._homes_of(hashes)
        numbers = self._first_alike(hashes, places)
        known = np.flatnonzero(numbers != UNKNOWN)
        if known.size:
            asked = list(names) if known.size == len(names) else [names[place] for place in known.tolist()]
            found = self._names_of(numbers[known])
            if found != asked:
                self._tell_apart(numbers, known, asked, found)
        return Lookup(numbers, hashes, places)

    def _tell_apart(self, numbers: Numbers, places: Places, asked: Sequence[str], found: Sequence[str | None]) -> None:
        """Correct the numbers at these positions where the lookup found another name with the same tag."""
        for place, name, other in zip(places.tolist(), asked, found, strict=True):
            if name != other:
                numbers[place] = self.find_one(name)

    def find_one(self, name: str) -> int:
        """The number of this name, or UNKNOWN."""
        hashed = _hash_of(name)
        place = self._alike_from(hashed >> self._shift, hashed)
        while entry := self._entries[place]:
            number = (entry & _NUMBER) - _FIRST
            if self._name_of(number) == name:
                return number
            place = self._alike_from((place + 1) & self._mask, hashed)
        return UNKNOWN

    def add(self, names: Sequence[str], numbers: Numbers, lookup: Lookup | None = None) -> None:
        """Add names with these numbers. None of the names may be in the index yet, and each must occur once.

        `lookup` is what `find` returned for these names, if the index has not changed since: it saves the probes.
        """
        self._used += len(names)
        if self._used * _ROOM > self._mask:
            kept = self._table[self._table > _REMOVED]
            self._resize(max(_LEAST_BITS, ((len(kept) + len(names)) * _ROOM).bit_length() + 1), kept)
            self._used += len(names)
            lookup = None
        hashes = lookup.hashes if lookup is not None else _hashes_of(names)
        places = lookup.places if lookup is not None else self._homes_of(hashes)
        self._put(_tagged(hashes) | (numbers + _FIRST).astype(np.uint64), places)

    def remove(self, names: Sequence[str], numbers: Numbers) -> None:
        """Remove names, which have these numbers."""
        if len(names) <= _FEW:
            for name, number in zip(names, numbers.tolist(), strict=True):
                self._remove_one(name, number)
            return
        hashes = _hashes_of(names)
        places = self._homes_of(hashes)
        entries = _tagged(hashes) | (numbers + _FIRST).astype(np.uint64)
        while (further := np.flatnonzero(self._table[places] != entries)).size:
            places[further] = (places[further] + 1) & self._mask
        self._table[places] = _REMOVED

    def _remove_one(self, name: str, number: int) -> None:
        hashed = _hash_of(name)
        place, entry = hashed >> self._shift, hashed & ~_NUMBER | number + _FIRST
        while self._entries[place] != entry:
            place = (place + 1) & self._mask
        self._entries[place] = _REMOVED

    def _resize(self, bits: int, entries: Hashes) -> None:
        """Allocate 2**bits slots, and insert these entries."""
        self._shift, self._mask, self._used = 64 - bits, (1 << bits) - 1, len(entries)
        self._table = np.zeros(1 << bits, np.uint64)
        self._entries = memoryview(self._table)  # type: ignore[arg-type]
        self._put(entries, self._homes_of(entries))

    def _put(self, entries: Hashes, places: Places) -> None:
        """Insert each entry into the first free slot of its probe sequence, which starts at its slot in `places`."""
        while entries.size:
            taken = self._table[places] > 0
            if not taken.any():
                self._table[places] = entries
            else:
                free = ~taken
                self._table[places[free]] = entries[free]
            waits = self._table[places] != entries
            entries, places = entries[waits], (places[waits] + 1) & self._mask

    def _first_alike(self, hashes: Hashes, places: Places) -> Numbers:
        """Find the first entry of each probe sequence that has the hash's tag. Returns the numbers in these entries,
        UNKNOWN where there is none, and moves `places` to the slots where the searches ended."""
        numbers, asking = np.full(len(hashes), UNKNOWN, np.int64), np.arange(len(hashes))
        while asking.size > _FEW:
            entries = self._table[places[asking]]
            taken = np.flatnonzero(entries)
            asking, entries = asking[taken], entries[taken]
            alike = ((entries ^ hashes[asking]) <= _NUMBER) & (entries != _REMOVED)
            if alike.any():
                numbers[asking[alike]] = (entries[alike] & _NUMBER).astype(np.int64) - _FIRST
                asking = asking[~alike]
            places[asking] = (places[asking] + 1) & self._mask
        for i, start, hashed in zip(asking.tolist(), places[asking].tolist(), hashes[asking].tolist(), strict=True):
            places[i] = self._alike_from(start, hashed)
            if entry := self._entries[places[i]]:
                numbers[i] = (entry & _NUMBER) - _FIRST
        return numbers

    def _alike_from(self, place: int, hashed: int) -> int:
        """The first slot from this one on that is free or has this hash's tag."""
        while (entry := self._entries[place]) and (entry == _REMOVED or entry ^ hashed > _NUMBER):
            place = (place + 1) & self._mask
        return place

    def _homes_of(self, hashes: Hashes) -> Places:
        return (hashes >> np.uint64(self._shift)).astype(np.intp)


def _hash_of(name: str) -> int:
    """Python's own salted hash, so clients cannot choose colliding names. The layout therefore differs per process."""
    return hash(name) & _WORD


def _hashes_of(names: Sequence[str]) -> Hashes:
    return np.fromiter(map(hash, names), np.int64, len(names)).view(np.uint64)


def _tagged(hashes: Hashes) -> Hashes:
    return hashes & np.uint64(_WORD ^ _NUMBER)
