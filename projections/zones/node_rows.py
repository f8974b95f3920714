"""The table of nodes, most of which stay in the columns that they joined in: a row is made when it is read.

A fleet comes in records of a thousand nodes, and is read by the thousand, if at all. A row per node would take as long
to make as all else that a join needs, and twice the memory. A node that changes by itself becomes a row, and one that
was loaded from saved rows stays one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventstore.folding.state_table import StateTable
from projections.columns import value_at
from projections.name_index import NUMBERS, UNKNOWN, NameIndex, Numbers
from projections.zones.joined import Joined
from projections.zones.rows import Node

_FEW = 16
"""Nodes that joined together up to which a row each is quicker to read, and takes less memory."""
_KEPT_PART = 4
"""Columns are kept while at least one in so many of their nodes is as it joined."""


class NodeRows(MutableMapping[str, Node]):
    """Nodes by name, in no order that means anything.

    Those that joined together are numbered in a row, from `_firsts` of their columns on. `_left` counts those who are
    as they joined, and `_lost` has the numbers of the others.
    """

    def __init__(self, numbers: int = NUMBERS) -> None:
        self._alone: dict[str, Node] = {}
        self._numbers = numbers
        self._begin()

    def _begin(self) -> None:
        self._index = NameIndex(self._name_of, self._names_of)
        self._joined: list[Joined] = []
        self._firsts = array("q")
        self._left: list[int] = []
        self._lost: set[int] = set()
        self._together = 0
        self._next = 0

    def __getitem__(self, name: str) -> Node:
        row: Node | None = self.get(name)
        if row is None:
            raise KeyError(name)
        return row

    def get(self, name: str, default: Any = None) -> Any:
        """The row of a node, if it is here. (What a mapping would inherit raises and catches an exception for it.)"""
        row = self._alone.get(name)
        if row is not None or not self._joined:
            return default if row is None else row
        number = self._index.find_one(name)
        return default if number == UNKNOWN else self._row_of(number)

    def __setitem__(self, name: str, row: Node) -> None:
        self._lose((name,))
        self._alone[name] = row

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.discard((name,))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has_any((name,))

    def __iter__(self) -> Iterator[str]:
        yield from self._alone
        for index, joined in enumerate(self._joined):
            yield from map(joined.event.names.__getitem__, self._places(index))

    def __len__(self) -> int:
        return len(self._alone) + self._together

    def values(self) -> ValuesView[Node]:
        return self._rows().values()

    def items(self) -> ItemsView[str, Node]:
        return self._rows().items()

    def update(self, rows: Any = (), /, **named: Node) -> None:
        given = dict(rows, **named)
        self._lose([*given])
        self._alone.update(given)

    def discard(self, names: Sequence[str]) -> None:
        """None of these nodes is here from here on."""
        self._lose(names)
        for name in names:
            self._alone.pop(name, None)

    def add(self, rows: Mapping[str, Node]) -> None:
        """Nodes none of which is here."""
        self._alone.update(rows)

    def add_joined(self, joined: Joined) -> None:
        """Nodes none of which is here, as columns."""
        names = joined.event.names
        if len(names) <= _FEW:
            self.add(dict(zip(names, joined.nodes(), strict=True)))
            return
        if self._next + len(names) > self._numbers:
            self._alone = self._rows()
            self._begin()
        self._index.add(names, np.arange(self._next, self._next + len(names)))
        self._joined.append(joined)
        self._firsts.append(self._next)
        self._left.append(len(names))
        self._together += len(names)
        self._next += len(names)

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of these nodes is here."""
        if not self._alone.keys().isdisjoint(names):
            return True
        if len(names) <= _FEW:
            return bool(self._joined) and any(self._index.find_one(name) != UNKNOWN for name in names)
        return bool((self._find(names) != UNKNOWN).any())

    def in_zone(self, zone: str) -> Iterator[str]:
        """Names of the nodes in a zone."""
        yield from (name for name, row in self._alone.items() if row.zone == zone)
        for index, joined in enumerate(self._joined):
            if zone in joined.zones:
                names, zones = joined.event.names, joined.zones
                yield from (names[place] for place in self._places(index) if value_at(zones, place) == zone)

    def get_many(self, names: Sequence[str]) -> list[Node | None]:
        """The rows of these nodes, None for those that are not here."""
        if self._joined and len(names) > _FEW and (as_joined := self._as_joined(names)) is not None:
            return [*as_joined]
        rows = list(map(self._alone.get, names))
        if not self._joined or all(rows):
            return rows
        numbers = self._find(names)
        together = np.flatnonzero(numbers != UNKNOWN)
        for place, row in zip(together.tolist(), self._rows_of(numbers[together]), strict=True):
            rows[place] = row
        return rows

    def _as_joined(self, names: Sequence[str]) -> list[Node] | None:
        """The rows of nodes that are in the order in which they joined, as most are when they are saved.

        The first is looked for, and those that joined behind it have the next names, or it is not so.
        """
        rows: list[Node] = []
        while len(rows) < len(names):
            number = self._index.find_one(names[len(rows)])
            index = bisect_right(self._firsts, number) - 1
            if number == UNKNOWN or self._left[index] < len(self._joined[index].event.names):
                return None
            joined, place = self._joined[index], number - self._firsts[index]
            some = joined.event.names[place : place + len(names) - len(rows)]
            if some != names[len(rows) : len(rows) + len(some)]:
                return None
            rows += joined.between(place, place + len(some)).nodes()
        return rows

    def _find(self, names: Sequence[str]) -> Numbers:
        """The numbers of those of these nodes that are as they joined."""
        if not self._joined:
            return np.full(len(names), UNKNOWN)
        if len(names) <= _FEW:
            return np.array([self._index.find_one(name) for name in names], np.int64)
        return self._index.find(names)

    def _lose(self, names: Sequence[str]) -> None:
        """Those of these nodes that are as they joined no longer are."""
        numbers = self._find(names)
        known = np.flatnonzero(numbers != UNKNOWN)
        if not known.size:
            return
        lost = numbers[known]
        self._index.remove([names[place] for place in known.tolist()], lost)
        self._lost.update(lost.tolist())
        self._together -= len(lost)
        for index, count in reversed([*zip(*np.unique(self._owners(lost), return_counts=True), strict=True)]):
            self._left[index] -= count
            if self._left[index] * _KEPT_PART < len(self._joined[index].event.names):
                self._take_apart(index)

    def _take_apart(self, index: int) -> None:
        """Have a row for each of the nodes that are left of those who joined together."""
        joined, first, places = self._joined[index], self._firsts[index], self._places(index)
        names = [joined.event.names[place] for place in places]
        self._index.remove(names, np.array(places, np.int64) + first)
        self._alone.update(zip(names, joined.get_many(places), strict=True))
        self._together -= len(names)
        self._lost.difference_update(range(first, first + len(joined.event.names)))
        del self._joined[index], self._firsts[index], self._left[index]

    def _places(self, index: int) -> Sequence[int]:
        """Where those stand who are as they joined."""
        first, count = self._firsts[index], len(self._joined[index].event.names)
        if self._left[index] == count:
            return range(count)
        return [place for place in range(count) if first + place not in self._lost]

    def _owners(self, numbers: Numbers) -> NDArray[np.intp]:
        """Which of `_joined` each of these numbers is of."""
        return np.searchsorted(np.frombuffer(self._firsts, np.int64), numbers, side="right") - 1

    def _split(self, numbers: Numbers) -> Iterator[tuple[Joined, Sequence[int]]]:
        """Neighbours of these that joined together, and their places among those: a range, if they are in a row."""
        if not numbers.size:
            return
        owners = self._owners(numbers)
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(cuts):
            index = owners[start]
            places = numbers[start:end] - self._firsts[index]
            in_a_row = end - start > 1 and bool((np.diff(places) == 1).all())
            yield self._joined[index], range(places[0], places[-1] + 1) if in_a_row else places.tolist()

    def _names_of(self, numbers: Numbers) -> list[str]:
        names: list[str] = []
        for joined, places in self._split(numbers):
            those = joined.event.names
            names += those[places.start : places.stop] if isinstance(places, range) else map(those.__getitem__, places)
        return names

    def _name_of(self, number: int) -> str:
        index = bisect_right(self._firsts, number) - 1
        return self._joined[index].event.names[number - self._firsts[index]]

    def _rows_of(self, numbers: Numbers) -> list[Node]:
        rows: list[Node] = []
        for joined, places in self._split(numbers):
            if isinstance(places, range):
                rows += joined.between(places.start, places.stop).nodes()
            elif len(places) <= _FEW:
                rows += map(joined.node, places)
            else:
                rows += joined.get_many(places)
        return rows

    def _row_of(self, number: int) -> Node:
        index = bisect_right(self._firsts, number) - 1
        return self._joined[index].node(number - self._firsts[index])

    def _rows(self) -> dict[str, Node]:
        """All of them, as rows."""
        rows = self._alone.copy()
        for index, joined in enumerate(self._joined):
            places = self._places(index)
            rows.update(zip(map(joined.event.names.__getitem__, places), joined.get_many(places), strict=True))
        return rows


class Nodes(StateTable[Node]):
    """The saved rows of nodes."""

    __slots__ = ()
    rows: NodeRows

    def __init__(self) -> None:
        super().__init__("nodes", Node)
        self.rows = NodeRows()

    def get_many(self, keys: Sequence[str]) -> list[Node | None]:
        return self.rows.get_many(keys)

    def add_all(self, rows: Mapping[str, Node]) -> None:
        self.rows.add(rows)
        self.touch_added(rows)

    def add_joined(self, joined: Joined) -> None:
        """Nodes none of which is in the table."""
        self.rows.add_joined(joined)
        self.touch_added(joined.event.names)

    def remove_all(self, keys: Sequence[str]) -> None:
        """Forget these rows, all of which are there."""
        self.rows.discard(keys)
        self.touch(keys)
