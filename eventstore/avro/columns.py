"""Decodes many records of one schema column by column: one field of all records at a time.

Each record has a cursor of its own, so the lengths of records may differ. For a few hundred records, numpy replaces
hundreds of Python instructions per record. The scan supports short ASCII text, numbers of up to 63 bits, and arrays
with at most one item. Other content raises Irregular, and the caller decodes the records one by one (reader). This
module therefore describes no faults of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from schemas.events import Event

Places: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

_NO_SHORT_LENGTH = 0b1000_0001
"""Bits of the first byte of a length. If one of them is set, the length is negative, or above 63 and continues in the
next byte."""

_BEYOND_BYTES = 4_096
"""Number of zero bytes after the last record. Only after the last field are the cursors compared with the ends of the
records. Until then a cursor may move beyond the last record, by at most 66 bytes per field. Events have far fewer than
62 fields, so the cursor stays within these zero bytes.
"""

_NUMBER_BYTES = 9


class Irregular(Exception):
    """These records cannot be read in columns."""


class EventColumns(NamedTuple):
    """Events of one type as columns.

    `columns` has the leading fields of the schema by name, including the fields of the envelope. The column of a text
    or a number has one value per event. The column of an array has the only item of each event's array. The column of
    bytes is one string, in which the bytes of all events are joined. If arrays or bytes are empty in every event, their
    column is empty. `examples` are events with distinct values of the fields that are not in `columns`; `example_of`
    has the index of each event's example.
    """

    columns: Mapping[str, Any]
    examples: Sequence[Any]
    example_of: Sequence[int]

    @property
    def ids(self) -> list[str]:
        """The command ids."""
        ids: list[str] = self.columns["command_id"]
        return ids

    @property
    def issued_ms(self) -> list[int]:
        """The times of the commands."""
        issued_ms: list[int] = self.columns["issued_at_ms"]
        return issued_ms


def leading_fields(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The name and kind of each leading field that can be read in columns."""
    return tuple(_leading(document))


def _leading(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field in document["fields"]:
        match field["type"]:
            case {"type": "record"} as record:
                yield from _leading(record)
            case {"type": "array", "items": "string" | "long" as item}:
                yield field["name"], f"{item}s"
            case "string" | "long" | "bytes" as kind:
                yield field["name"], kind
            case _:
                return


def read_columns(
    fields: Sequence[tuple[str, str]], values: Sequence[bytes], begin: int, decode: Callable[[bytes], Event]
) -> EventColumns:
    """Read these fields of record bodies, which begin at the offset `begin` of each value. Raises Irregular, and the
    errors of `decode`."""
    scan = _Scan(values, begin)
    columns = {name: scan.column(kind) for name, kind in fields}
    rests = scan.rest()
    example = dict(zip(rests, values, strict=True))
    number_of = {rest: number for number, rest in enumerate(example)}
    return EventColumns(columns, [decode(value) for value in example.values()], [number_of[rest] for rest in rests])


class _Scan:
    """Reads the fields of records in the order of their schema. Every method raises Irregular."""

    def __init__(self, values: Sequence[bytes], begin: int) -> None:
        joined = b"".join(values)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self._ends = np.cumsum(lengths)
        self._at: Places = self._ends - lengths + begin
        self._joined = joined
        self._text = joined.decode("latin-1")
        self._bytes: Octets = np.frombuffer(joined + bytes(_BEYOND_BYTES), np.uint8)

    def column(self, kind: str) -> Any:
        """Read the next field, which has this kind, of every record."""
        match kind:
            case "string":
                return self._texts()
            case "long":
                return self._numbers()
            case "bytes":
                return self._packed()
        if not self._has_item():
            return []
        items = self.column(kind.removesuffix("s"))
        _require(self._alike() == 0)
        return items

    def rest(self) -> list[bytes]:
        """The remaining bytes of each record."""
        _require((self._at <= self._ends).all())
        joined = self._joined
        return [joined[start:end] for start, end in zip(self._at.tolist(), self._ends.tolist(), strict=True)]

    def _texts(self) -> list[str]:
        sizes = self._bytes[self._at]
        _require(not (sizes & _NO_SHORT_LENGTH).any())
        starts = self._at + 1
        self._at = ends = starts + (sizes >> 1)
        text = self._text
        texts = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        _require("".join(texts).isascii())
        return texts

    def _numbers(self) -> list[int]:
        found = np.zeros(len(self._at), np.int64)
        going = np.ones(len(self._at), np.bool_)
        for shift in range(0, 7 * _NUMBER_BYTES, 7):
            octet = self._bytes[self._at]
            found |= np.where(going, (octet & 127).astype(np.int64) << shift, 0)
            self._at = self._at + going
            going &= octet >= 128
            if not going.any():
                numbers: list[int] = (found >> 1 ^ -(found & 1)).tolist()
                return numbers
        raise Irregular

    def _has_item(self) -> bool:
        """Read the item count of an array in each record: True if every array has one item, False if every array is
        empty. Other counts raise Irregular."""
        count = self._alike()
        _require(count in (0, 2))
        return count == 2

    def _packed(self) -> bytes:
        """Read the same number of bytes of each record, and join them."""
        length = self._alike()
        _require(not length & _NO_SHORT_LENGTH)
        octets: Octets = self._bytes[self._at[:, None] + np.arange(length >> 1)]
        self._at = self._at + (length >> 1)
        return bytes(octets)

    def _alike(self) -> int:
        """Read one byte, which must be the same in all records."""
        octets = self._bytes[self._at]
        _require((octets == octets[0]).all())
        self._at = self._at + 1
        return int(octets[0])


def _require(regular: Any) -> None:
    if not regular:
        raise Irregular
