"""The table of members. Most members are columns over slots, and their rows are built on read.

New members arrive as columns and stay columns: a row per member would take four times the memory, and ten times
the time to fold. A member that changed since, or has no slot, is stored as a single row.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from eventstore.folding.state_table import StateTable
from projections.fleet.membership.labels import LabelSets
from projections.fleet.membership.rows import Member
from projections.fleet.membership.slot_table import SlotTable, places_of
from projections.name_index import UNKNOWN, Lookup, NameIndex, Numbers

_BATCH_LOOKUP_MIN = 16
"""Up to this many members, single lookups are faster than a lookup in columns."""


class NewNames(NamedTuple):
    """Names that no member has, and the result of their lookup, if they were looked up together."""

    lookup: Lookup | None


class MemberRows(MutableMapping[str, Member]):
    """Members by name, in no particular order. `_names` has the name of the columnar member in each slot, if there is
    one."""

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._single: dict[str, Member] = {}
        self._index = NameIndex(lambda slot: self._names[slot], self._names_of)
        self._columnar = 0
        self._names: list[str | None] = []
        self._zone_numbers: dict[str, int] = {}
        self._zones: list[str] = []
        self._columnar_in_zone: list[int] = []
        self._free_zones: list[int] = []
        self._single_in_zone: Counter[str] = Counter()
        self._zone = array("i")
        self._created_ms = array("q")
        self._last_present_ms = array("q")
        self._uids: list[str] = []

    def __getitem__(self, name: str) -> Member:
        row = self.get(name)
        if row is None:
            raise KeyError(name)
        return row

    def get(self, name: str, default: Member | None = None) -> Member | None:  # type: ignore[override]
        """The row of a member, or None. (The method inherited from Mapping raises and catches an exception for a
        miss.)"""
        row = self._single.get(name)
        if row is not None:
            return row
        slot = self._slot(name)
        return default if slot == UNKNOWN else self._row(slot)

    def __setitem__(self, name: str, row: Member) -> None:
        if not self._remove_columnar(name):
            self._remove_single(name)
        self._single[name] = row
        self._single_in_zone[row.zone] += 1

    def __delitem__(self, name: str) -> None:
        if not self._remove_single(name) and not self._remove_columnar(name):
            raise KeyError(name)

    def population(self, zone: str) -> int:
        """The number of members of a zone, including nodes that left and that a hold retains."""
        number = self._zone_numbers.get(zone)
        return self._single_in_zone[zone] + (self._columnar_in_zone[number] if number is not None else 0)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._single or self._slot(name) != UNKNOWN)

    def __iter__(self) -> Iterator[str]:
        yield from self._single
        yield from (name for name in self._names if name is not None)

    def __len__(self) -> int:
        return len(self._single) + self._columnar

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of these names is a member."""
        if not self._single.keys().isdisjoint(names):
            return True
        return any(self._slot(name) != UNKNOWN for name in names)

    def look_up_new(self, names: Sequence[str]) -> NewNames | None:
        """Look up names that are to be added, and return the argument for `add_columns`; None if one of them is a
        member."""
        if len(names) <= _BATCH_LOOKUP_MIN or not self._columnar:
            return None if self.has_any(names) else NewNames(None)
        lookup = self._index.find(names) if self._single.keys().isdisjoint(names) else None
        return NewNames(lookup) if lookup is not None and lookup.is_empty() else None

    def rows(self) -> dict[str, Member]:
        """All members, as rows."""
        columnar = [(name, slot) for slot, name in enumerate(self._names) if name is not None]
        rows = self._some([slot for _, slot in columnar])
        return self._single | {name: row for (name, _), row in zip(columnar, rows, strict=True)}

    def single_rows(self) -> dict[str, Member]:
        """The members that are stored as single rows, including all members without a slot."""
        return self._single

    def get_many(self, names: Sequence[str]) -> list[Member | None]:
        """The rows of the members with these names; None for a name without a member. The lookup is by column, because
        a save reads hundreds of members at a time."""
        if self._columnar and len(names) > _BATCH_LOOKUP_MIN:
            slot = self._index.find_one(names[0])
            if slot != UNKNOWN and self._names[slot : slot + len(names)] == names:  # neighbours, as most are
                return [*self._some(range(slot, slot + len(names)))]
        found = list(map(self._single.get, names))
        if not self._columnar or all(found):
            return found
        slots = self._index.find(names).numbers
        columnar = np.flatnonzero(slots != UNKNOWN)
        for place, row in zip(columnar.tolist(), self._some(slots[columnar].tolist()), strict=True):
            found[place] = row
        return found

    def restore(self, rows: Mapping[str, Member]) -> None:
        """Fill from saved rows, whose slots are allocated already."""
        self._single = {name: row for name, row in rows.items() if not _fits_columns(row)}
        self._single_in_zone = Counter(row.zone for row in self._single.values())
        columnar = {name: row for name, row in rows.items() if _fits_columns(row)}
        slots = np.array([row.slot for row in columnar.values()], np.int64)
        count = int(slots.max(initial=-1)) + 1
        zone, created_ms, last_present_ms = (
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        zone[slots] = [self._number_of(row.zone) for row in columnar.values()]
        self._columnar_in_zone = np.bincount(zone[slots], minlength=len(self._zones)).tolist()
        created_ms[slots] = [row.created_ms for row in columnar.values()]
        last_present_ms[slots] = [row.last_present_ms for row in columnar.values()]
        self._zone, self._created_ms = array("i", zone.tobytes()), array("q", created_ms.tobytes())
        self._last_present_ms = array("q", last_present_ms.tobytes())
        self._names, self._uids = [None] * count, [""] * count
        for name, row in columnar.items():
            self._names[row.slot], self._uids[row.slot] = name, row.uid
        self._index.add([*columnar], slots)
        self._columnar = len(columnar)

    def add_columns(
        self,
        names: Sequence[str],
        slots: Sequence[int],
        zones: Sequence[str],
        created_ms: Sequence[int],
        uids: Sequence[str],
        *,
        last_present_ms: Sequence[int],
        new: NewNames,
    ) -> None:
        """Add effective members in these slots, which ascend."""
        self._grow(slots[-1] + 1)
        counts = Counter(zones)
        numbers = {zone: self._number_of(zone) for zone in sorted(counts)}
        for zone, count in counts.items():
            self._columnar_in_zone[numbers[zone]] += count
        at = places_of(slots)
        np.asarray(self._zone)[at] = [*map(numbers.__getitem__, zones)]
        np.asarray(self._created_ms)[at] = created_ms
        np.asarray(self._last_present_ms)[at] = last_present_ms
        if isinstance(at, slice):
            self._uids[at], self._names[at] = uids, names
        else:
            for slot, uid, name in zip(slots, uids, names, strict=True):
                self._uids[slot], self._names[slot] = uid, name
        self._index.add(names, np.array(slots, np.int64), new.lookup)
        self._columnar += len(names)

    def _grow(self, count: int) -> None:
        """Extend each column to `count` slots."""
        missing = count - len(self._uids)
        if missing > 0:
            self._zone.frombytes(bytes(missing * self._zone.itemsize))
            self._created_ms.frombytes(bytes(missing * self._created_ms.itemsize))
            self._last_present_ms.frombytes(bytes(missing * self._last_present_ms.itemsize))
            self._uids += [""] * missing
            self._names += [None] * missing

    def _remove_columnar(self, name: str) -> bool:
        """Remove a columnar member; False if no columnar member has this name."""
        slot = self._slot(name)
        if slot == UNKNOWN:
            return False
        self._index.remove((name,), np.array([slot]))
        self._names[slot] = None
        self._columnar -= 1
        number = self._zone[slot]
        self._columnar_in_zone[number] -= 1
        if not self._columnar_in_zone[number]:
            del self._zone_numbers[self._zones[number]]
            self._free_zones.append(number)
        return True

    def _remove_single(self, name: str) -> bool:
        """Remove a member that is stored as a single row; False if no such member has this name."""
        row = self._single.pop(name, None)
        if row is None:
            return False
        self._single_in_zone[row.zone] -= 1
        if not self._single_in_zone[row.zone]:
            del self._single_in_zone[row.zone]
        return True

    def _slot(self, name: str) -> int:
        return self._index.find_one(name) if self._columnar else UNKNOWN

    def _names_of(self, slots: Numbers) -> list[str | None]:
        return list(map(self._names.__getitem__, slots.tolist()))

    def _number_of(self, zone: str) -> int:
        """The number of a zone, stable while a columnar member has it."""
        number = self._zone_numbers.get(zone)
        if number is not None:
            return number
        if self._free_zones:
            number = self._free_zones.pop()
            self._zones[number] = zone
        else:
            number = len(self._zones)
            self._zones.append(zone)
            self._columnar_in_zone.append(0)
        self._zone_numbers[zone] = number
        return number

    def _row(self, slot: int) -> Member:
        zone, created_ms, uid = self._zones[self._zone[slot]], self._created_ms[slot], self._uids[slot]
        last_present_ms = self._last_present_ms[slot]
        return Member(
            zone,
            created_ms,
            uid,
            *self._slot_table.at(slot),
            slot,
            held=False,
            delayed_by=-1,
            last_present_ms=last_present_ms,
        )

    def _some(self, slots: Sequence[int]) -> Iterator[Member]:
        """The rows of the columnar members in these slots."""
        taken = np.array(slots, np.int64)
        zones = [self._zones[number] for number in np.asarray(self._zone, np.int32)[taken].tolist()]
        created_ms = np.asarray(self._created_ms, np.int64)[taken].tolist()
        last_present_ms = np.asarray(self._last_present_ms, np.int64)[taken].tolist()
        uids = [self._uids[slot] for slot in slots]
        columns = (
            zones,
            created_ms,
            uids,
            *self._slot_table.get_many(taken),
            slots,
            repeat(False),
            repeat(-1),
            last_present_ms,
        )
        return map(Member, *columns)


def _fits_columns(row: Member) -> bool:
    """Whether the columns can represent all fields of a member."""
    return row.slot >= 0 and not row.contested4 and not row.contested6


class Members(StateTable[Member]):
    """The saved rows of members."""

    __slots__ = ()
    rows: MemberRows

    def __init__(self) -> None:
        super().__init__("members", Member)
        self.rows = MemberRows(SlotTable(LabelSets()))

    def get_many(self, keys: Sequence[str]) -> Sequence[Member | None]:
        return self.rows.get_many(keys)

    def restore(self, rows: Mapping[str, Member], slot_table: SlotTable) -> None:
        """Replace all rows, whose slots are allocated in this slot table."""
        self.rows = MemberRows(slot_table)
        self.rows.restore(rows)

    def add_columns(
        self,
        names: list[str],
        slots: Sequence[int],
        zones: Sequence[str],
        created_ms: Sequence[int],
        uids: Sequence[str],
        *,
        last_present_ms: Sequence[int],
        new: NewNames,
    ) -> None:
        """Like `MemberRows.add_columns`, and mark these members as changed."""
        self.rows.add_columns(names, slots, zones, created_ms, uids, last_present_ms=last_present_ms, new=new)
        self.touch_added(names)
