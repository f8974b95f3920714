"""A table of a fold's state: rows in memory, with the keys that changed since the last save."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Row = TypeVar("Row")

_SET_KEYS_MAX = 64
"""Keys up to which a list of their own is not worth it."""


class ChangedKeys(NamedTuple):
    """The keys of rows to save, each list sorted; under those in `fresh` nothing was saved that could be looked up."""

    fresh: list[str]
    changed: list[str]


class StateTable(Generic[Row]):
    """A mapping from text keys to rows, with the keys that changed since `drain`.

    `rows` is read freely, and written only through `put`, `put_all` and `remove`. `row_type` is what msgspec decodes a
    saved row into.

    Keys that changed one by one are put into a set. Those that changed together stay the list that they came as, since
    a set of them would cost a replay more than the rows do; it is made when they are drained, or when the lists have
    grown longer than the table, so whatever changes however often, they take no more than the rows.

    A key that was not in the table when it was added is not among the saved ones either, unless it was removed since
    the last save: then it is in the set, and counts as changed.
    """

    __slots__ = ("_added", "_changed", "_listed", "_together", "name", "row_type", "rows")

    def __init__(self, name: str, row_type: type[Row]) -> None:
        self.name = name
        self.row_type = row_type
        self.rows: MutableMapping[str, Row] = {}
        self._changed: set[str] = set()
        self._together: list[Collection[str]] = []
        self._added: list[str] = []
        self._listed = 0

    def put(self, key: str, row: Row) -> None:
        self.rows[key] = row
        self._changed.add(key)

    def put_all(self, rows: Mapping[str, Row]) -> None:
        self.rows.update(rows)
        self.touch([*rows])

    def add_all(self, rows: Mapping[str, Row]) -> None:
        """Put rows under keys none of which is in the table."""
        self.rows.update(rows)
        self.touch_added(rows)

    def remove(self, key: str) -> None:
        """Forget a row; no error if it is not there."""
        if self.rows.pop(key, None) is not None:
            self._changed.add(key)

    def remove_all(self, keys: Iterable[str]) -> None:
        """Forget the rows under these keys; no error if some are not there."""
        for key in keys:
            self.remove(key)

    def touch(self, keys: Collection[str]) -> None:
        """These rows are to be saved, whether or not they changed. Nobody may alter `keys` from here on."""
        if len(keys) <= _SET_KEYS_MAX:
            self._changed.update(keys)
            return
        self._together.append(keys)
        self._listed += len(keys)
        self._bound()

    def touch_added(self, keys: Iterable[str]) -> None:
        """These rows are new in the table."""
        self._added += keys
        self._bound()

    def changes(self) -> int:
        """How many rows changed since the last drain; one that changed several times may count as several."""
        return len(self._changed) + len(self._added) + self._listed

    def drain(self) -> ChangedKeys:
        """What changed since the last drain."""
        added, self._added = self._added, []
        self._gather()
        if not self._changed.isdisjoint(added):
            added = [key for key in added if key not in self._changed]
        drained = ChangedKeys(sorted(added), sorted(self._changed))
        self._changed.clear()
        return drained

    def get_many(self, keys: Sequence[str]) -> Sequence[Row | None]:
        """The rows under these keys, None for those that are not there."""
        return list(map(self.rows.get, keys))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Fill from saved rows; nothing becomes dirty."""
        self.rows.update(rows)

    def _bound(self) -> None:
        if self._listed + len(self._added) > len(self.rows):
            self._gather()

    def _gather(self) -> None:
        self._changed.update(self._added, *self._together)
        self._added.clear()
        self._together.clear()
        self._listed = 0
