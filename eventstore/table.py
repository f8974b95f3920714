"""Rows in memory that know which of them changed since they were last saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Generic, TypeVar

Row = TypeVar("Row")

_FEW = 64
"""Keys up to which a list of their own is not worth it."""


class Table(Generic[Row]):
    """A mapping from text keys to rows, with the keys that changed since `drain`.

    `rows` is read freely, and written only through `put`, `put_all` and `remove`. `row_type` is what msgspec decodes a
    saved row into.

    Keys that changed one by one are put into a set. Those that changed together stay the list that they came as, since
    a set of them would cost a replay more than the rows do; it is made when they are drained, or when the lists have
    grown longer than the table, so whatever changes however often, they take no more than the rows.
    """

    __slots__ = ("_changed", "_listed", "_together", "name", "row_type", "rows")

    def __init__(self, name: str, row_type: type[Row]) -> None:
        self.name = name
        self.row_type = row_type
        self.rows: MutableMapping[str, Row] = {}
        self._changed: set[str] = set()
        self._together: list[Collection[str]] = []
        self._listed = 0

    def put(self, key: str, row: Row) -> None:
        self.rows[key] = row
        self._changed.add(key)

    def put_all(self, rows: Mapping[str, Row]) -> None:
        self.rows.update(rows)
        self.touch([*rows])

    def remove(self, key: str) -> None:
        """Forget a row; no error if it is not there."""
        if self.rows.pop(key, None) is not None:
            self._changed.add(key)

    def touch(self, keys: Collection[str]) -> None:
        """These rows are to be saved, whether or not they changed. Nobody may alter `keys` from here on."""
        if len(keys) <= _FEW:
            self._changed.update(keys)
            return
        self._together.append(keys)
        self._listed += len(keys)
        if self._listed > len(self.rows):
            self._gather()

    def changes(self) -> int:
        """How many rows changed since the last drain; one that changed several times may count as several."""
        return len(self._changed) + self._listed

    def drain(self) -> list[tuple[str, Row | None]]:
        """The changed rows since the last drain, sorted by key, None for the removed ones."""
        self._gather()
        changed = [(key, self.rows.get(key)) for key in sorted(self._changed)]
        self._changed.clear()
        return changed

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Fill from saved rows; nothing becomes dirty."""
        self.rows.update(rows)

    def _gather(self) -> None:
        self._changed.update(*self._together)
        self._together.clear()
        self._listed = 0
