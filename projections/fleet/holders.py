"""Who holds each address: nearly always one slot, which is what the index says, and `shared` has the few with several.

A fleet that joins in batches asks only whether anybody holds any of a thousand addresses, which bitmaps say at a tenth
of what it costs to enter each address in the index. So a batch of IPv4 addresses is set aside as it came, and entered
when one of them is first asked for: every held address is either in the index or in one batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np
from pyroaring import BitMap

Address: TypeAlias = int | bytes
"""IPv4 as an integer, IPv6 as 16 bytes."""

BATCH_ADDRESSES = 2_000
"""Addresses of a batch at most, as many as fit a record: entering them takes a fraction of a millisecond."""

_FEW = 256
"""Addresses up to which order does not pay, and that are entered at once, as a search looks at every batch."""


class Column4(NamedTuple):
    """IPv4 addresses, one per item (0 for none), those that are given, and whether one of them is given twice."""

    values: array[int]
    given: BitMap
    repeats: bool


def column4(packed: bytes) -> Column4:
    """Addresses as array("I") lays them out."""
    values = array("I", packed)
    in_order = array("I", np.sort(np.frombuffer(packed, np.uint32)).tobytes()) if len(values) > _FEW else values
    given = BitMap(in_order)  # which takes a third of the time if they come in order
    given.discard(0)
    return Column4(values, given, len(given) != np.count_nonzero(np.frombuffer(packed, np.uint32)))


class _Batch(NamedTuple):
    """Addresses that neighbouring slots hold, from `slot` on, each of them alone."""

    column: Column4
    slot: int


class Holders:
    """The slots that hold each address."""

    def __init__(self) -> None:
        self.shared: dict[Address, tuple[int, ...]] = {}
        self._first: dict[Address, int] = {}
        self._taken = BitMap()
        self._batches: list[_Batch] = []

    def any_of(self, fours: BitMap, sixes: Collection[Address]) -> bool:
        """Whether anybody holds any of these."""
        return not self._taken.isdisjoint(fours) or not self._first.keys().isdisjoint(sixes)

    def of(self, address: Address) -> tuple[int, ...]:
        """The slots that hold an address, in no particular order."""
        several = self.shared.get(address)
        if several is not None:
            return several
        first = self._find(address)
        return () if first is None else (first,)

    def hold(self, address: Address, slot: int) -> None:
        """A slot holds an address, too."""
        first = self._find(address)
        if first is None:
            self._first[address] = slot
            if isinstance(address, int):
                self._taken.add(address)
        elif first != slot:
            self.shared[address] = (*self.shared.get(address, (first,)), slot)

    def hold_batch(self, column: Column4, slot: int) -> None:
        """Neighbouring slots, from this one on, hold addresses that nobody else does."""
        self._taken |= column.given
        batch = _Batch(column, slot)
        if len(column.values) > _FEW:
            self._batches.append(batch)
        else:
            self._enter(batch)

    def hold_sixes(self, addresses: Sequence[Address], slots: Iterable[int]) -> None:
        """These slots hold addresses that nobody else does; b"" is none."""
        self._first.update(zip(addresses, slots, strict=True))
        self._first.pop(b"", None)

    def seat4(self, values: array[int]) -> None:
        """Slots, from the first on, hold these, of which some may be held by several; nobody holds any yet."""
        if column4(values.tobytes()).repeats:
            for slot, address in enumerate(values):
                if address:
                    self.hold(address, slot)
            return
        for start in range(0, len(values), BATCH_ADDRESSES):
            self.hold_batch(column4(values[start : start + BATCH_ADDRESSES].tobytes()), start)

    def seat6(self, held: Sequence[tuple[Address, int]]) -> None:
        """As `seat4`, by address and slot."""
        alone = dict(held)
        if len(alone) == len(held):
            self._first.update(alone)
            return
        for address, slot in held:
            self.hold(address, slot)

    def release(self, address: Address, slot: int) -> None:
        """A slot that held an address does not any more."""
        several = self.shared.pop(address, None)
        if several is None:
            self._find(address)
            del self._first[address]
            if isinstance(address, int):
                self._taken.discard(address)
            return
        left = tuple(other for other in several if other != slot)
        self._first[address] = left[0]
        if len(left) > 1:
            self.shared[address] = left

    def _find(self, address: Address) -> int | None:
        """A slot that holds an address."""
        first = self._first.get(address)
        if first is None and isinstance(address, int) and address in self._taken:
            number = next(number for number, batch in enumerate(self._batches) if address in batch.column.given)
            self._enter(self._batches.pop(number))
            first = self._first[address]
        return first

    def _enter(self, batch: _Batch) -> None:
        self._first.update(zip(batch.column.values, count(batch.slot), strict=False))
        self._first.pop(0, None)
