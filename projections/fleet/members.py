"""The table of members, most of which are only a slot: columns over slots say the rest, and a row is made when read.

A fleet that joins in batches comes as columns and is kept as columns: a row per member would take four times the memory
and a tenth of the fold. A member that was decided by itself, or has no slot, stays the row that it was decided as.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import repeat

import numpy as np

from eventstore.folding.table import Table
from projections.fleet.labels import Labels
from projections.fleet.membership import Member
from projections.fleet.roster import Roster
from projections.name_index import UNKNOWN, NameIndex, Numbers

_FEW = 16
"""Members up to which it is quicker to look for each by itself."""


class MemberRows(MutableMapping[str, Member]):
    """Members by name, in no order that means anything. `_names` says who is seated in a slot, if anybody."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._whole: dict[str, Member] = {}
        self._index = NameIndex(lambda slot: self._names[slot], self._names_of)
        self._seated = 0
        self._names: list[str | None] = []
        self._zone_numbers: dict[str, int] = {}
        self._zones: list[str] = []
        self._seated_in: list[int] = []
        self._free_zones: list[int] = []
        self._whole_in: Counter[str] = Counter()
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
        """The row of a member, if it is one. (What a mapping would inherit raises and catches an exception for it.)"""
        row = self._whole.get(name)
        if row is not None:
            return row
        slot = self._slot(name)
        return default if slot == UNKNOWN else self._row(slot)

    def __setitem__(self, name: str, row: Member) -> None:
        if not self._unseat(name):
            self._pop_whole(name)
        self._whole[name] = row
        self._whole_in[row.zone] += 1

    def __delitem__(self, name: str) -> None:
        if not self._pop_whole(name) and not self._unseat(name):
            raise KeyError(name)

    def population(self, zone: str) -> int:
        """How many members a zone has, those included that left and are kept by a hold."""
        number = self._zone_numbers.get(zone)
        return self._whole_in[zone] + (self._seated_in[number] if number is not None else 0)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._whole or self._slot(name) != UNKNOWN)

    def __iter__(self) -> Iterator[str]:
        yield from self._whole
        yield from (name for name in self._names if name is not None)

    def __len__(self) -> int:
        return len(self._whole) + self._seated

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of these is a member."""
        if not self._whole.keys().isdisjoint(names):
            return True
        if len(names) <= _FEW:
            return any(self._slot(name) != UNKNOWN for name in names)
        return bool(self._seated) and bool((self._index.find(names) != UNKNOWN).any())

    def add(self, rows: Mapping[str, Member]) -> None:
        """Members none of which was one."""
        self._whole.update(rows)
        self._whole_in.update(row.zone for row in rows.values())

    def rows(self) -> dict[str, Member]:
        """All of them, as rows."""
        seated = [(name, slot) for slot, name in enumerate(self._names) if name is not None]
        rows = self._some([slot for _, slot in seated])
        return self._whole | {name: row for (name, _), row in zip(seated, rows, strict=True)}

    def whole(self) -> dict[str, Member]:
        """The members that are kept as rows, as those without a slot are."""
        return self._whole

    def some(self, names: Sequence[str]) -> list[Member | None]:
        """The rows of these members, None for those that are none: by columns, as a save takes them by the hundred."""
        if self._seated and len(names) > _FEW:
            slot = self._index.find_one(names[0])
            if slot != UNKNOWN and self._names[slot : slot + len(names)] == names:  # seated in this order, as most are
                return [*self._some(range(slot, slot + len(names)))]
        found = list(map(self._whole.get, names))
        if not self._seated or all(found):
            return found
        slots = self._index.find(names)
        seated = np.flatnonzero(slots != UNKNOWN)
        for place, row in zip(seated.tolist(), self._some(slots[seated].tolist()), strict=True):
            found[place] = row
        return found

    def restored(self, rows: Mapping[str, Member]) -> None:
        """Fill from saved rows, whose slots have been seated in the roster."""
        self._whole = {name: row for name, row in rows.items() if not _is_plain(row)}
        self._whole_in = Counter(row.zone for row in self._whole.values())
        seated = {name: row for name, row in rows.items() if _is_plain(row)}
        slots = np.array([row.slot for row in seated.values()], np.int64)
        count = int(slots.max(initial=-1)) + 1
        zone, created_ms, last_present_ms = (
            np.zeros(count, np.int32),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        zone[slots] = [self._number_of(row.zone) for row in seated.values()]
        self._seated_in = np.bincount(zone[slots], minlength=len(self._zones)).tolist()
        created_ms[slots] = [row.created_ms for row in seated.values()]
        last_present_ms[slots] = [row.last_present_ms for row in seated.values()]
        self._zone, self._created_ms = array("i", zone.tobytes()), array("q", created_ms.tobytes())
        self._last_present_ms = array("q", last_present_ms.tobytes())
        self._names, self._uids = [None] * count, [""] * count
        for name, row in seated.items():
            self._names[row.slot], self._uids[row.slot] = name, row.uid
        self._index.add([*seated], slots)
        self._seated = len(seated)

    def seat(
        self,
        names: Sequence[str],
        slots: Sequence[int],
        zones: Sequence[str],
        created_ms: Sequence[int],
        uids: Sequence[str],
        *,
        last_present_ms: Sequence[int],
    ) -> None:
        """Effective members, in neighbouring slots behind all that anybody had."""
        self._grow(slots[0])
        counts = Counter(zones)
        numbers = {zone: self._number_of(zone) for zone in sorted(counts)}
        for zone, count in counts.items():
            self._seated_in[numbers[zone]] += count
        self._zone.fromlist([*map(numbers.__getitem__, zones)])
        self._created_ms.frombytes(np.array(created_ms, np.int64).tobytes())
        self._last_present_ms.frombytes(np.array(last_present_ms, np.int64).tobytes())
        self._uids += uids
        self._names += names
        assert len(self._uids) == slots[-1] + 1, "slots are neighbours, one per name"
        self._index.add(names, np.arange(slots[0], slots[-1] + 1))
        self._seated += len(names)

    def _grow(self, count: int) -> None:
        """Have an entry in each column for all slots below `count`."""
        missing = count - len(self._uids)
        if missing > 0:
            self._zone.frombytes(bytes(missing * self._zone.itemsize))
            self._created_ms.frombytes(bytes(missing * self._created_ms.itemsize))
            self._last_present_ms.frombytes(bytes(missing * self._last_present_ms.itemsize))
            self._uids += [""] * missing
            self._names += [None] * missing

    def _unseat(self, name: str) -> bool:
        """Whether this member was seated, which it no longer is."""
        slot = self._slot(name)
        if slot == UNKNOWN:
            return False
        self._index.remove((name,), np.array([slot]))
        self._names[slot] = None
        self._seated -= 1
        number = self._zone[slot]
        self._seated_in[number] -= 1
        if not self._seated_in[number]:
            del self._zone_numbers[self._zones[number]]
            self._free_zones.append(number)
        return True

    def _pop_whole(self, name: str) -> bool:
        """Whether this member was kept as a row, which it no longer is."""
        row = self._whole.pop(name, None)
        if row is None:
            return False
        self._whole_in[row.zone] -= 1
        if not self._whole_in[row.zone]:
            del self._whole_in[row.zone]
        return True

    def _slot(self, name: str) -> int:
        return self._index.find_one(name) if self._seated else UNKNOWN

    def _names_of(self, slots: Numbers) -> list[str | None]:
        return list(map(self._names.__getitem__, slots.tolist()))

    def _number_of(self, zone: str) -> int:
        """The number of a zone. It stays while a seated member has it."""
        number = self._zone_numbers.get(zone)
        if number is not None:
            return number
        if self._free_zones:
            number = self._free_zones.pop()
            self._zones[number] = zone
        else:
            number = len(self._zones)
            self._zones.append(zone)
            self._seated_in.append(0)
        self._zone_numbers[zone] = number
        return number

    def _row(self, slot: int) -> Member:
        zone, created_ms, uid = self._zones[self._zone[slot]], self._created_ms[slot], self._uids[slot]
        last_present_ms = self._last_present_ms[slot]
        return Member(
            zone,
            created_ms,
            uid,
            *self._roster.at(slot),
            slot,
            held=False,
            withheld=-1,
            last_present_ms=last_present_ms,
        )

    def _some(self, slots: Sequence[int]) -> Iterator[Member]:
        """The rows of those who are seated in these slots."""
        taken = np.array(slots, np.int64)
        zones = [self._zones[number] for number in np.asarray(self._zone, np.int32)[taken].tolist()]
        created_ms = np.asarray(self._created_ms, np.int64)[taken].tolist()
        last_present_ms = np.asarray(self._last_present_ms, np.int64)[taken].tolist()
        uids = [self._uids[slot] for slot in slots]
        columns = (
            zones,
            created_ms,
            uids,
            *self._roster.some(taken),
            slots,
            repeat(False),
            repeat(-1),
            last_present_ms,
        )
        return map(Member, *columns)


def _is_plain(row: Member) -> bool:
    """Whether columns over slots say all of a member."""
    return row.slot >= 0 and not row.contested4 and not row.contested6


class Members(Table[Member]):
    """The saved rows of members."""

    __slots__ = ()
    rows: MemberRows

    def __init__(self) -> None:
        super().__init__("members", Member)
        self.rows = MemberRows(Roster(Labels()))

    def some(self, keys: Sequence[str]) -> Sequence[Member | None]:
        return self.rows.some(keys)

    def add_all(self, rows: Mapping[str, Member]) -> None:
        self.rows.add(rows)
        self.touch_added(rows)

    def reseat(self, rows: Mapping[str, Member], roster: Roster) -> None:
        """These are the rows, and their slots are in this roster from here on."""
        self.rows = MemberRows(roster)
        self.rows.restored(rows)

    def seat(
        self,
        names: list[str],
        slots: Sequence[int],
        zones: Sequence[str],
        created_ms: Sequence[int],
        uids: Sequence[str],
        *,
        last_present_ms: Sequence[int],
    ) -> None:
        """As `MemberRows.seat`; these members changed."""
        self.rows.seat(names, slots, zones, created_ms, uids, last_present_ms=last_present_ms)
        self.touch_added(names)
