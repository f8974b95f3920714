"""The table of members, most of which are only a slot: columns over slots say the rest, and a row is made when read.

A fleet that joins in batches comes as columns and is kept as columns: a row per member would take four times the memory
and a tenth of the fold. A member that was decided by itself, or has no slot, stays the row that it was decided as.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, KeysView, Mapping, MutableMapping, Sequence
from itertools import repeat

import numpy as np

from eventstore.folding.table import Table
from projections.fleet.labels import Labels
from projections.fleet.membership import Member
from projections.fleet.roster import Roster


class MemberRows(MutableMapping[str, Member]):
    """Members by name."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._found: dict[str, Member | int] = {}
        self._zone_numbers: dict[str, int] = {}
        self._zones: list[str] = []
        self._zone = array("i")
        self._created_ms = array("q")
        self._uids: list[str] = []

    def __getitem__(self, name: str) -> Member:
        found = self._found[name]
        return found if isinstance(found, Member) else self._row(found)

    def get(self, name: str, default: Member | None = None) -> Member | None:  # type: ignore[override]
        """The row of a member, if it is one. (What a mapping would inherit raises and catches an exception for it.)"""
        found = self._found.get(name)
        if type(found) is int:
            return self._row(found)
        return default if found is None else found  # type: ignore[return-value]

    def __setitem__(self, name: str, row: Member) -> None:
        self._found[name] = row

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def keys(self) -> KeysView[str]:
        return self._found.keys()

    def rows(self) -> dict[str, Member]:
        """All of them, as rows."""
        return {name: row if isinstance(row, Member) else self._row(row) for name, row in self._found.items()}

    def whole(self) -> dict[str, Member]:
        """The members that are kept as rows, as those without a slot are."""
        return {name: row for name, row in self._found.items() if isinstance(row, Member)}

    def some(self, names: Iterable[str]) -> list[Member | None]:
        """The rows of these members, None for those that are none: by columns, as a save takes them by the hundred."""
        found = list(map(self._found.get, names))
        slots = [slot for slot in found if type(slot) is int]
        taken = np.array(slots, np.int64)
        zones = [self._zones[number] for number in np.asarray(self._zone, np.int32)[taken].tolist()]
        created_ms = np.asarray(self._created_ms, np.int64)[taken].tolist()
        uids, held = [self._uids[slot] for slot in slots], self._roster.some(taken)
        rows = map(Member, zones, created_ms, uids, *held, slots, repeat(False), repeat(-1))
        if len(slots) == len(found):
            return list(rows)
        return [next(rows) if type(each) is int else each for each in found]  # type: ignore[misc]

    def restored(self, rows: Mapping[str, Member]) -> None:
        """Fill from saved rows, whose slots have been seated in the roster."""
        self._found = {name: row if row.slot < 0 else row.slot for name, row in rows.items()}
        seated = [row for row in rows.values() if row.slot >= 0]
        slots = [row.slot for row in seated]
        count = max(slots, default=-1) + 1
        zone, created_ms = np.zeros(count, np.int32), np.zeros(count, np.int64)
        zone[slots] = [self._number_of(row.zone) for row in seated]
        created_ms[slots] = [row.created_ms for row in seated]
        self._zone, self._created_ms = array("i", zone.tobytes()), array("q", created_ms.tobytes())
        self._uids = [""] * count
        for slot, row in zip(slots, seated, strict=True):
            self._uids[slot] = row.uid

    def seat(
        self,
        names: Sequence[str],
        slots: Sequence[int],
        zones: Sequence[str],
        created_ms: Sequence[int],
        uids: Sequence[str],
    ) -> None:
        """Effective members, in neighbouring slots behind all that anybody had."""
        self._grow(slots[0])
        numbers = {zone: self._number_of(zone) for zone in sorted(set(zones))}
        self._zone.fromlist([*map(numbers.__getitem__, zones)])
        self._created_ms.frombytes(np.array(created_ms, np.int64).tobytes())
        self._uids += uids
        assert len(self._uids) == slots[-1] + 1, "slots are neighbours, one per name"
        self._found.update(zip(names, slots, strict=True))

    def _grow(self, count: int) -> None:
        """Have an entry in each column for all slots below `count`."""
        missing = count - len(self._uids)
        if missing > 0:
            self._zone.frombytes(bytes(missing * self._zone.itemsize))
            self._created_ms.frombytes(bytes(missing * self._created_ms.itemsize))
            self._uids += [""] * missing

    def _number_of(self, zone: str) -> int:
        number = self._zone_numbers.get(zone)
        if number is None:
            number = self._zone_numbers[zone] = len(self._zones)
            self._zones.append(zone)
        return number

    def _row(self, slot: int) -> Member:
        zone, created_ms, uid = self._zones[self._zone[slot]], self._created_ms[slot], self._uids[slot]
        return Member(zone, created_ms, uid, *self._roster.at(slot), slot, held=False, withheld=-1)


class Members(Table[Member]):
    """The saved rows of members."""

    __slots__ = ()
    rows: MemberRows

    def __init__(self) -> None:
        super().__init__("members", Member)
        self.rows = MemberRows(Roster(Labels()))

    def some(self, keys: Iterable[str]) -> Sequence[Member | None]:
        return self.rows.some(keys)

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
    ) -> None:
        """As `MemberRows.seat`; these members changed."""
        self.rows.seat(names, slots, zones, created_ms, uids)
        self.touch_added(names)
