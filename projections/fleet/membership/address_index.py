"""Address index: the slots that hold each address. `shared` has the few addresses that several slots hold.

For a batch of joins, the fold only needs to know whether any slot holds one of a thousand addresses. A bitmap of all
held IPv4 addresses answers this at a tenth of the cost of adding each address to the index. So the addresses of a large
batch are added to the bitmap only, and the batch is stored as received. The whole batch is added to the index when a
second slot gets one of its addresses, or when one of its addresses is removed. Every held address is either in the
index or in one batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from pyroaring import BitMap

Address: TypeAlias = int | bytes
"""IPv4 as an integer, IPv6 as 16 bytes."""

BATCH_ADDRESSES = 2_000
"""Maximum number of addresses of a batch: as many as fit a record. Adding them to the index takes a fraction of a
millisecond."""

_SMALL_BATCH = 256
"""Maximum number of addresses of a small batch. A small batch is added to the index at once, because a lookup scans all
stored batches. It is not sorted either: at this size, sorting takes more time than it saves."""


class Column4(NamedTuple):
    """IPv4 addresses, one per item (0 for none); the non-zero addresses; and whether any of them occurs twice."""

    values: array[int]
    given: BitMap
    repeats: bool


def column4(packed: bytes) -> Column4:
    """The column of packed addresses: four bytes each, in this machine's order of bytes, as in an array("I")."""
    values = array("I", packed)
    in_order = array("I", np.sort(np.frombuffer(packed, np.uint32)).tobytes()) if len(values) > _SMALL_BATCH else values
    given = BitMap(in_order)  # a sorted array takes a third of the time
    given.discard(0)
    return Column4(values, given, len(given) != np.count_nonzero(np.frombuffer(packed, np.uint32)))


class _Batch(NamedTuple):
    """Addresses with one holder each: the slot at the same place in `slots`."""

    column: Column4
    slots: Sequence[int]


class AddressIndex:
    """The index from addresses to slots."""

    def __init__(self) -> None:
        self.shared: dict[Address, tuple[int, ...]] = {}
        self._first: dict[Address, int] = {}
        self._held4 = BitMap()
        self._batches: list[_Batch] = []

    def has_any(self, fours: BitMap, sixes: Collection[Address]) -> bool:
        """Whether any slot holds any of these addresses."""
        return not self._held4.isdisjoint(fours) or not self._first.keys().isdisjoint(sixes)

    def slots_of(self, address: Address) -> tuple[int, ...]:
        """The slots that hold an address, in no particular order."""
        several = self.shared.get(address)
        if several is not None:
            return several
        first = self._first.get(address)
        if first is None and isinstance(address, int) and address in self._held4:
            batch = self._batches[self._batch_of(address)]
            first = batch.slots[batch.column.values.index(address)]
        return () if first is None else (first,)

    def add(self, address: Address, slot: int) -> None:
        """Add a slot to an address."""
        first = self._indexed(address)
        if first is None:
            self._first[address] = slot
            if isinstance(address, int):
                self._held4.add(address)
        elif first != slot:
            self.shared[address] = (*self.shared.get(address, (first,)), slot)

    def add_batch(self, column: Column4, slots: Sequence[int]) -> None:
        """Add slots with addresses that no other slot holds."""
        self._held4 |= column.given
        batch = _Batch(column, slots)
        if len(column.values) > _SMALL_BATCH:
            self._batches.append(batch)
        else:
            self._add_to_index(batch)

    def add_all6(self, addresses: Sequence[Address], slots: Iterable[int]) -> None:
        """Add slots with IPv6 addresses that no other slot holds; b"" is none."""
        self._first.update(zip(addresses, slots, strict=True))
        self._first.pop(b"", None)

    def restore4(self, values: array[int]) -> None:
        """Fill an empty index with the address of each slot, in the order of the slots; several slots may hold one
        address."""
        if column4(values.tobytes()).repeats:
            for slot, address in enumerate(values):
                if address:
                    self.add(address, slot)
            return
        for start in range(0, len(values), BATCH_ADDRESSES):
            batch = values[start : start + BATCH_ADDRESSES]
            self.add_batch(column4(batch.tobytes()), range(start, start + len(batch)))

    def restore6(self, held: Sequence[tuple[Address, int]]) -> None:
        """Like `restore4`, from pairs of an IPv6 address and a slot."""
        alone = dict(held)
        if len(alone) == len(held):
            self._first.update(alone)
            return
        for address, slot in held:
            self.add(address, slot)

    def remove(self, address: Address, slot: int) -> None:
        """Remove a slot from an address."""
        several = self.shared.pop(address, None)
        if several is None:
            self._indexed(address)
            del self._first[address]
            if isinstance(address, int):
                self._held4.discard(address)
            return
        left = tuple(other for other in several if other != slot)
        self._first[address] = left[0]
        if len(left) > 1:
            self.shared[address] = left

    def _indexed(self, address: Address) -> int | None:
        """A slot that holds an address; None if no slot holds it. Adds the address's batch to the index first."""
        first = self._first.get(address)
        if first is None and isinstance(address, int) and address in self._held4:
            self._add_to_index(self._batches.pop(self._batch_of(address)))
            first = self._first[address]
        return first

    def _batch_of(self, address: int) -> int:
        return next(number for number, batch in enumerate(self._batches) if address in batch.column.given)

    def _add_to_index(self, batch: _Batch) -> None:
        self._first.update(zip(batch.column.values, batch.slots, strict=True))
        self._first.pop(0, None)
