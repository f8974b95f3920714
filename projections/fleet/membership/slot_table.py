"""Slot table of fleet: a dense number (slot) for each node state that the fold still uses, and columns of addresses and
labels over the slots.

Each member has a slot. Each older state of a node that a hold retains has a slot of its own. The lowest free slot is
allocated first, and slot numbers never leave the fold. Columns over slots are plain arrays, which numpy reads in place,
so the addresses of a rule set are picked in milliseconds.

An address counts once per slot that holds it, and is unreachable when the last of them is freed (`address_index`). The
addresses of each label set are counted as well, so that an edit of a policy looks at label sets and not at a million
members.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from projections.fleet.membership.address_index import Address, AddressIndex, Column4
from projections.fleet.membership.labels import LabelSets

_NO_ADDRESS6 = bytes(16)


def as_int(address: Address) -> int:
    """An address as a number; 0 for none."""
    return address if isinstance(address, int) else int.from_bytes(address, "big")


def places_of(slots: Sequence[int]) -> slice | npt.NDArray[np.int64]:
    """Ascending slots as an index into columns: a slice if they are consecutive, because that is faster."""
    if slots[-1] - slots[0] < len(slots):
        return slice(slots[0], slots[-1] + 1)
    return np.array(slots, np.int64)


class SlotRow(Protocol):
    """The fields of a member's row that the slot table reads."""

    @property
    def slot(self) -> int: ...

    @property
    def address4(self) -> int: ...

    @property
    def address6(self) -> bytes: ...


class Column6(NamedTuple):
    """The IPv6 addresses of items in two forms. `values` has one entry per item, b"" for an item without an address.
    `packed` has the bytes of the record; it is b"" if no item has an address."""

    values: Sequence[Address]
    packed: bytes

    def given(self) -> list[Address]:
        """The addresses, without the empty items."""
        return list(filter(None, self.values)) if self.packed else []


class LabelColumn(NamedTuple):
    """The label sets of new members: `numbers` has the id of each member's label set; `uses` counts the members and
    `held` the addresses of each label set, by its id."""

    numbers: npt.NDArray[np.int32]
    uses: Mapping[int, int]
    held: Mapping[int, int]


class SlotTable:
    """Slots, columns and the address index. `addresses` counts the addresses of all slots; a shared address counts
    once per slot."""

    def __init__(self, labels: LabelSets) -> None:
        self.labels = labels
        self.names: list[str] = []
        self.address_index = AddressIndex()
        self.addresses = 0
        self.label = array("i")
        self._four = array("I")
        self._six = array("Q")
        self._free_slots = BitMap()
        self._addresses_by_label: Counter[int] = Counter()

    def bits(self, address: Address) -> int:
        """The sets that hold an address, one bit per set."""
        bits = 0
        for slot in self.address_index.slots_of(address):
            bits |= self.labels.bits[self.label[slot]]
        return bits

    def allocate_batch(
        self, names: Sequence[str], fours: Column4, sixes: Column6, labels: LabelColumn
    ) -> Sequence[int]:
        """Slots in ascending order, the lowest free ones first, for new members whose addresses no slot holds."""
        freed = self._free_slots[: len(names)]
        self._free_slots -= freed
        fresh = range(len(self.names), len(self.names) + len(names) - len(freed))
        slots = [*freed, *fresh] if freed else fresh
        self.names += names[len(freed) :]
        for name, slot in zip(names, freed, strict=False):
            self.names[slot] = name
        at = places_of(slots)
        for column, width in ((self.label, 1), (self._four, 1), (self._six, 2)):
            column.frombytes(bytes(len(fresh) * width * column.itemsize))
        np.asarray(self.label)[at] = labels.numbers
        np.asarray(self._four)[at] = np.asarray(fours.values)
        self.address_index.add_batch(fours, slots)
        if sixes.packed:
            np.asarray(self._six).reshape(-1, 2)[at] = np.frombuffer(sixes.packed, ">u8").reshape(-1, 2)
            self.address_index.add_all6(sixes.values, slots)
        for label, count in labels.uses.items():
            self.labels.use(label, count)
        self._addresses_by_label.update(labels.held)
        self.addresses += sum(labels.held.values())
        return slots

    def at(self, slot: int) -> tuple[int, bytes, dict[str, str]]:
        """The addresses and labels of a slot."""
        high, low = self._six[2 * slot], self._six[2 * slot + 1]
        address6 = (high << 64 | low).to_bytes(16, "big") if high or low else b""
        return self._four[slot], address6, self.labels.sets[self.label[slot]]

    def get_many(self, slots: npt.NDArray[np.int64]) -> tuple[list[int], list[bytes], list[dict[str, str]]]:
        """The addresses and labels of these slots, as three columns."""
        fours = np.asarray(self._four, np.uint32)[slots].tolist()
        sixes = np.asarray(self._six, np.uint64).reshape(-1, 2)[slots]
        if sixes.any():
            packed = sixes.astype(">u8").tobytes()
            addresses6 = [packed[i : i + 16] for i in range(0, len(packed), 16)]
            addresses6 = [b"" if address == _NO_ADDRESS6 else address for address in addresses6]
        else:
            addresses6 = [b""] * len(slots)
        labels = np.asarray(self.label, np.int32)[slots].tolist()
        return fours, addresses6, [self.labels.sets[number] for number in labels]

    def allocate(self, name: str, address4: Address, address6: Address, label: int) -> int:
        """Allocate the lowest free slot for these addresses and labels."""
        if self._free_slots:
            slot = self._free_slots.min()
            self._free_slots.remove(slot)
        else:
            slot = self._grow()
        self.names[slot] = name
        self.label[slot] = label
        self._four[slot] = as_int(address4)
        self._six[2 * slot], self._six[2 * slot + 1] = divmod(as_int(address6), 1 << 64)
        self.labels.use(label, 1)
        for address in (address4, address6):
            if address:
                self.address_index.add(address, slot)
                self._addresses_by_label[label] += 1
                self.addresses += 1
        return slot

    def free(self, slot: int, address4: int, address6: bytes) -> None:
        """Free a slot, which has these addresses."""
        for address in (address4, address6):
            if address:
                self.address_index.remove(address, slot)
                self._addresses_by_label[self.label[slot]] -= 1
                self.addresses -= 1
        self.labels.use(self.label[slot], -1)
        self.label[slot], self._four[slot] = -1, 0
        self._six[2 * slot] = self._six[2 * slot + 1] = 0
        self.names[slot] = ""
        self._free_slots.add(slot)

    def restore(self, names: list[str], rows: Sequence[SlotRow], labels: list[int]) -> None:
        """Fill an empty table with saved rows; the slots between them are free."""
        slots = [row.slot for row in rows]
        fours, sixes = [row.address4 for row in rows], [row.address6 for row in rows]
        count = max(slots, default=-1) + 1
        label, four, six = np.full(count, -1, np.int32), np.zeros(count, np.uint32), np.zeros((count, 2), np.uint64)
        label[slots], four[slots] = labels, fours
        six[slots] = np.frombuffer(b"".join([value or _NO_ADDRESS6 for value in sixes]), ">u8").reshape(-1, 2)
        self.label, self._four = array("i", label.tobytes()), array("I", four.tobytes())
        self._six = array("Q", six.tobytes())
        self._free_slots = BitMap(np.flatnonzero(label < 0).astype(np.uint32))
        self.names = [""] * count
        for slot, name in zip(slots, names, strict=True):
            self.names[slot] = name
        for number, uses in Counter(labels).items():
            self.labels.use(number, uses)
        taken = label >= 0
        each = (four[taken] != 0).astype(np.int64) + six[taken].any(axis=1)
        self._addresses_by_label = Counter(
            dict(enumerate(np.bincount(label[taken], weights=each).astype(np.int64).tolist()))
        )
        self.addresses = sum(self._addresses_by_label.values())
        self.address_index.restore4(self._four)
        self.address_index.restore6([(address, slot) for address, slot in zip(sixes, slots, strict=True) if address])

    def addresses4(self, picked: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
        """IPv4 addresses of the picked slots; they may repeat."""
        found: npt.NDArray[np.uint32] = np.asarray(self._four, np.uint32)[picked]
        return found[found > 0]

    def addresses6(self, picked: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Upper and lower halves of the IPv6 addresses of the picked slots; they may repeat."""
        six = np.asarray(self._six, np.uint64)
        high, low = six[::2], six[1::2]
        wanted = np.flatnonzero(picked & ((high | low) != 0))
        return high[wanted], low[wanted]

    def in_set(self, bit: int) -> npt.NDArray[np.bool_]:
        """A mask of the slots in a set."""
        label = np.asarray(self.label, np.int32)
        picked = self.labels.groups_in(bit)
        if not len(picked):
            return np.zeros(len(label), np.bool_)
        found: npt.NDArray[np.bool_] = picked[self.labels.groups_of(label)] & (label >= 0)
        return found

    def count_by_labels(self) -> Mapping[tuple[int, ...], int]:
        """The number of addresses per combination of label sets. The combination of an address has the label sets of
        all slots that hold it: mostly one slot."""
        counts: Counter[tuple[int, ...]] = Counter(
            {(number,): held for number, held in sorted(self._addresses_by_label.items()) if held}
        )
        for slots in self.address_index.shared.values():
            numbers = tuple(sorted(self.label[slot] for slot in slots))
            for number in numbers:
                counts[number,] -= 1
            counts[numbers] += 1
        return counts

    def count_by_bits(self) -> Mapping[int, int]:
        """The number of addresses in each combination of sets."""
        counts: Counter[int] = Counter()
        for numbers, held in self.count_by_labels().items():
            bits = 0
            for number in numbers:
                bits |= self.labels.bits[number]
            counts[bits] += held
        return counts

    def _grow(self) -> int:
        self.names.append("")
        self.label.append(-1)
        self._four.append(0)
        self._six.extend((0, 0))
        return len(self.names) - 1
