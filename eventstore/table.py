"""Rows in memory that know which of them changed since they were last saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Table(Generic[Row]):
    """A mapping from text keys to rows, with the keys that changed since `drain`.

    `rows` is read freely, and written only through `put`, `put_all` and `remove`. `row_type` is what msgspec decodes a
    saved row into.
    """

    __slots__ = ("dirty", "name", "row_type", "rows")

    def __init__(self, name: str, row_type: type[Row]) -> None:
        self.name = name
        self.row_type = row_type
        self.rows: dict[str, Row] = {}
        self.dirty: set[str] = set()

    def put(self, key: str, row: Row) -> None:
        self.rows[key] = row
        self.dirty.add(key)

    def put_all(self, rows: Mapping[str, Row]) -> None:
        self.rows.update(rows)
        self.dirty.update(rows)

    def remove(self, key: str) -> None:
        """Forget a row; no error if it is not there."""
        if self.rows.pop(key, None) is not None:
            self.dirty.add(key)

    def drain(self) -> list[tuple[str, Row | None]]:
        """The changed rows since the last drain, sorted by key, None for the removed ones."""
        changed = [(key, self.rows.get(key)) for key in sorted(self.dirty)]
        self.dirty.clear()
        return changed

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Fill from saved rows; nothing becomes dirty."""
        self.rows.update(rows)
