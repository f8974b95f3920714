"""A table of a fold's state: rows in memory, with the keys that changed since the last save."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Generic, NamedTuple, TypeVar

Row = TypeVar("Row")

_SET_KEYS_MAX = 64
"""Maximum length of a list of keys that is added to the set of changed keys; longer lists stay lists."""


class ChangedKeys(NamedTuple):
    """The keys of rows to save, each list sorted. The keys in `fresh` have no saved row."""

    fresh: list[str]
    changed: list[str]


class StateTable(Generic[Row]):
    """A mapping from text keys to rows, with the keys that changed since `drain`.

    `rows` is read freely, and written only through `put`, `put_all` and `remove`. `row_type` is what msgspec decodes a
    saved row into.

    Keys that changed one by one go into a set. Keys that changed together stay in their list, because a set of them
    would cost a replay more than the rows do. The lists become a set when they are drained, or when they have grown
    longer than the table, so they never take more memory than the rows.

    A key that was absent from the table when it was added has no saved row, unless it was removed since the last save.
    In that case the key is in the set and counts as changed.
    """

    __slots__ = ("_added", "_changed", "_listed", "_together", "_watched", "name", "row_type", "rows")

    def __init__(self, name: str, row_type: type[Row]) -> None:
        self.name = name
        self.row_type = row_type
        self.rows: MutableMapping[str, Row] = {}
        self._changed: set[str] = set()
        self._together: list[Collection[str]] = []
        self._added: list[str] = []
        self._listed = 0
        self._watched: dict[str, Row | None] | None = None

    def put(self, key: str, row: Row) -> None:
        self.rows[key] = row
        self._changed.add(key)
        if self._watched is not None:
            self._watched.setdefault(key, None)

    def put_all(self, rows: Mapping[str, Row]) -> None:
        self.rows.update(rows)
        self.touch([*rows])

    def add_all(self, rows: Mapping[str, Row]) -> None:
        """Put rows under keys that are not in the table."""
        self.rows.update(rows)
        self.touch_added(rows)

    def remove(self, key: str) -> None:
        """Remove a row; no error if it is absent."""
        removed = self.rows.pop(key, None)
        if removed is None:
            return
        self._changed.add(key)
        if self._watched is not None:
            self._watched[key] = removed

    def remove_all(self, keys: Iterable[str]) -> None:
        """Remove the rows under these keys; no error if some are absent."""
        for key in keys:
            self.remove(key)

    def touch(self, keys: Collection[str]) -> None:
        """Mark these rows as changed, whether or not they are. The caller must not modify `keys` afterwards."""
        self._note(keys)
        if len(keys) <= _SET_KEYS_MAX:
            self._changed.update(keys)
            return
        self._together.append(keys)
        self._listed += len(keys)
        self._bound()

    def touch_added(self, keys: Collection[str]) -> None:
        """Mark these rows as new in the table."""
        self._note(keys)
        self._added += keys
        self._bound()

    def changes(self) -> int:
        """Number of rows that changed since the last drain; a row that changed again may count again."""
        return len(self._changed) + len(self._added) + self._listed

    def drain(self) -> ChangedKeys:
        """Return the changes since the last drain, and clear them."""
        added, self._added = self._added, []
        self._gather()
        if not self._changed.isdisjoint(added):
            added = [key for key in added if key not in self._changed]
        drained = ChangedKeys(sorted(added), sorted(self._changed))
        self._changed.clear()
        return drained

    def take_watched(self) -> dict[str, Row | None]:
        """The keys that changed since the last call. The value of a key is the last row that was removed under it in
        that time, or None. The first call returns nothing, and starts collecting changes. Only one caller may use this
        method, because each call removes the keys that it returns."""
        taken, self._watched = self._watched or {}, {}
        return taken

    def _note(self, keys: Iterable[str]) -> None:
        if self._watched is not None:
            for key in keys:
                self._watched.setdefault(key, None)

    def get_many(self, keys: Sequence[str]) -> Sequence[Row | None]:
        """The rows under these keys; None for absent ones."""
        return list(map(self.rows.get, keys))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Fill the table from saved rows, without marking them as changed."""
        self.rows.update(rows)

    def _bound(self) -> None:
        if self._listed + len(self._added) > len(self.rows):
            self._gather()

    def _gather(self) -> None:
        self._changed.update(self._added, *self._together)
        self._added.clear()
        self._together.clear()
        self._listed = 0
