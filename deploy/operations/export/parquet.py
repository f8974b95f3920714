"""Rows of the log as a Parquet file: typed columns, dictionaries for repeated values, written in groups of rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from deploy.operations.export.rows import RECORD_FIELDS, EventRow
from eventstore.errors import PermanentError

GROUP_ROWS = 65_536
GROUP_BYTES = 32 << 20
"""Limits of a group of rows: the number of rows, and of characters in their events. A group that reaches a limit is
written, so memory holds one group at most."""


class ParquetFile:
    """Writes rows to a Parquet file, which is complete when the context ends without an error."""

    def __init__(self, path: Path, *, explode: bool) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise PermanentError("format: parquet needs pyarrow: pip install 'dpuplane[analytics]'") from error
        self.rows = 0
        self._pa = pyarrow
        self._schema = _schema(pyarrow, explode=explode)
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._pending: list[EventRow] = []
        self._bytes = 0

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._write()
        self._file.close()

    def add(self, rows: Iterable[EventRow]) -> None:
        """Append these rows."""
        for row in rows:
            self._pending.append(row)
            self._bytes += len(row.event or "")
            if len(self._pending) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._write()

    def _write(self) -> None:
        if not self._pending:
            return
        columns = dict(zip(EventRow._fields, zip(*self._pending, strict=True), strict=True))
        columns["labels"] = _pairs(columns["labels"])
        arrays = [self._pa.array(columns[field.name], field.type) for field in self._schema]
        self._file.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
        self.rows += len(self._pending)
        self._pending, self._bytes = [], 0


def _pairs(labels: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if each is None else list(each.items()) for each in labels)


def _schema(pa: Any, *, explode: bool) -> Any:
    time, repeating = pa.timestamp("ms", tz="UTC"), pa.dictionary(pa.int32(), pa.string())
    types = {
        "topic": repeating,
        "partition": pa.int32(),
        "offset": pa.int64(),
        "appended_at": time,
        "type": repeating,
        "subject": pa.string(),
        "actor": repeating,
        "command_id": pa.string(),
        "issued_at": time,
        "event": pa.large_string(),
        "item": pa.int32(),
        "node": pa.string(),
        "zone": repeating,
        "state": repeating,
        "created_at": time,
        "uid": pa.string(),
        "address4": pa.string(),
        "address6": pa.string(),
        "labels": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[name]) for name in (EventRow._fields if explode else RECORD_FIELDS)])
