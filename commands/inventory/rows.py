"""Reads the rows of an inventory file as text by column, and the faults of its lines.

The format is CSV (the first line names the columns) or JSON lines (one object per line); the first character decides.
The file is read line by line and is not trusted: a line has a maximum length, a row is one line, and a line that does
not parse becomes a fault with its line number. A fault in the first line of CSV applies to the whole file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from eventstore.errors import PermanentError
from projections.field_checks import quoted

MAX_LINE_BYTES = 256 * 1024
MAX_FAULTS = 100
"""Maximum number of reported faults; further ones are only counted."""


class LineFault(NamedTuple):
    """A fault of a line. Line 0 stands for the file or the options."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class InventoryError(PermanentError):
    """The file or the options are invalid; nothing was applied. `faults` are the first of `count` faults."""

    def __init__(self, faults: tuple[LineFault, ...], count: int) -> None:
        more = f" (the first of {count} faults)" if count > 1 else ""
        super().__init__(f"{faults[0]}{more}")
        self.faults = faults
        self.count = count


class Row(NamedTuple):
    """One row: its line number, and its values by column. A value may be empty. A row of a table (CSV) has all
    columns."""

    line: int
    values: dict[str, str]
    is_of_table: bool


class _BadLine(Exception):
    """A line that is not a valid row."""


def bad_file(reason: str, line: int = 0) -> InventoryError:
    return InventoryError((LineFault(line, reason),), 1)


def read_rows(stream: BinaryIO) -> Iterator[Row | LineFault]:
    """Every row or fault, in file order. Raises InventoryError for a header without column names."""
    header: list[str] | None = None
    is_json = False
    for number, raw in _lines(stream):
        is_first = header is None and not is_json
        try:
            text = _decoded(raw, is_first=is_first)
            if not text.strip():
                continue
            if is_first and text.lstrip().startswith("{"):
                is_json = True
            if is_json:
                yield Row(number, _json_values(text), is_of_table=False)
            elif header is None:
                header = _header(text)
            else:
                yield Row(number, _csv_values(text, header), is_of_table=True)
        except _BadLine as bad:
            if is_first and not is_json:
                raise bad_file(str(bad), number) from None
            yield LineFault(number, str(bad))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines without their ends; None for a line over the maximum length, which is not stored."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 2):
        number += 1
        is_whole = raw.endswith(b"\n") or len(raw) < MAX_LINE_BYTES + 2
        if is_whole:
            line = raw.rstrip(b"\r\n")
            yield number, line if len(line) <= MAX_LINE_BYTES else None
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES)
        yield number, None


def _decoded(raw: bytes | None, *, is_first: bool) -> str:
    if raw is None:
        raise _BadLine(f"the line is longer than the {MAX_LINE_BYTES} bytes allowed")
    try:
        return raw.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError as error:
        raise _BadLine(f"byte {error.start + 1} of the line is not UTF-8") from None


def _header(text: str) -> list[str]:
    if text.lstrip().startswith("["):
        raise _BadLine("a JSON file must have one object per line, not a list; convert it with `jq -c '.[]'`")
    columns = [column.strip() for column in _fields(text)]
    for number, column in enumerate(columns, start=1):
        if not column:
            raise _BadLine(f"column {number} has no name")
        if column in columns[: number - 1]:
            raise _BadLine(f"column {quoted(column)} is named twice")
    return columns


def _csv_values(text: str, header: list[str]) -> dict[str, str]:
    fields = _fields(text)
    if len(fields) != len(header):
        raise _BadLine(f"the row has {len(fields)} fields and the header {len(header)}")
    return {column: field.strip() for column, field in zip(header, fields, strict=True)}


def _fields(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise _BadLine(f"the line is not valid CSV: {error}") from None


def _json_values(text: str) -> dict[str, str]:
    try:
        found: Any = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
    except json.JSONDecodeError as error:
        raise _BadLine(f"the line is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise _BadLine("the line is JSON nested too deeply") from None
    if not isinstance(found, dict):
        raise _BadLine("the line must be one JSON object")
    return {key: _text(key, value) for key, value in found.items()}


def _text(key: str, value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value.strip()
    raise _BadLine(f"{quoted(key)} must be text, a number, true, false or null")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _BadLine(f"{quoted(next(key for key in keys if keys.count(key) > 1))} is given twice")
    return found


def _refuse_constant(name: str) -> str:
    raise _BadLine(f"{name} is not a valid JSON number")
