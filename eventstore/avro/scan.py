"""Decodes many records of one schema column by column: one field of all records at a time.

Each record has a cursor of its own, so the lengths of records may differ. For a few hundred records, numpy replaces
hundreds of Python instructions per record. The scan supports short ASCII text, numbers of up to 63 bits, and arrays
with at most one item. Other content raises Irregular, and the caller decodes the records one by one (reader), so no
code here describes the faults of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

_NO_SHORT_LENGTH = 0b1000_0001
"""Bits that are set in a length below 0, or in a length above 63, which takes more than this byte."""

_BEYOND_BYTES = 4_096
"""Maximum distance of a cursor beyond the last record before a check: each step is at most 64 bytes."""

_NUMBER_BYTES = 9

_ID_BYTES = 36
_HYPHENS = np.array([8, 13, 18, 23])
_DIGITS = np.array([place for place in range(_ID_BYTES) if place not in (8, 13, 18, 23)])
_TIME_DIGITS = 12
_NO_DIGIT = 255
_DIGIT_OF = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT_OF[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_TIME_WEIGHTS = 16 ** np.arange(_TIME_DIGITS - 1, -1, -1, dtype=np.int64)


class Irregular(Exception):
    """These records cannot be read in columns."""


class Scan:
    """Reads the fields of records in the order of their schema. Every method raises Irregular."""

    def __init__(self, values: Sequence[bytes], begin: int) -> None:
        joined = b"".join(values)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self._ends = np.cumsum(lengths)
        self._at: Places = self._ends - lengths + begin
        self._joined = joined
        self._text = joined.decode("latin-1")
        self._bytes: Octets = np.frombuffer(joined + bytes(_BEYOND_BYTES), np.uint8)

    def last_text(self, count: int, *, is_no: bytes) -> list[str]:
        """Read the last of the next texts of each record; one text for all records if they are equal.

        The text must not begin with these bytes.
        """
        starts = self._at
        for _ in range(count):
            begin, end = self._span()
        skipped = self._cut(starts, self._at)
        if _is_one(skipped):
            begin, end = begin[:1], end[:1]
        alike = begin[self._bytes[begin] == is_no[0]]
        octets = self._bytes[alike[:, None] + np.arange(len(is_no))]
        _require(not (octets == np.frombuffer(is_no, np.uint8)).all(axis=1).any())
        texts = self._cut(begin, end)
        return texts[:1] if _is_one(texts) else texts

    def texts(self) -> list[str]:
        """Read a text of each record."""
        return self._cut(*self._span())

    def ids(self) -> tuple[list[str], Places]:
        """Read a command id of each record, all well formed, and the times inside them."""
        octets = self._bytes[self._at[:, None] + np.arange(1, _ID_BYTES + 1)]
        ids = self.texts()
        digits = _DIGIT_OF[octets[:, _DIGITS]]
        version, variant = digits[:, _TIME_DIGITS], digits[:, _TIME_DIGITS + 4]
        _require((octets[:, _HYPHENS] == ord("-")).all() and (digits != _NO_DIGIT).all())
        _require((version == 7).all() and (variant & 12 == 8).all() and set(map(len, ids)) == {_ID_BYTES})
        return ids, digits[:, :_TIME_DIGITS].astype(np.int64) @ _TIME_WEIGHTS

    def numbers(self) -> Places:
        """Read a number of each record."""
        found = np.zeros(len(self._at), np.int64)
        going = np.ones(len(self._at), np.bool_)
        for shift in range(0, 7 * _NUMBER_BYTES, 7):
            octet = self._bytes[self._at]
            found |= np.where(going, (octet & 127).astype(np.int64) << shift, 0)
            self._at = self._at + going
            going &= octet >= 128
            if not going.any():
                return found >> 1 ^ -(found & 1)
        raise Irregular

    def has_item(self) -> bool:
        """Whether each array at the cursors has one item; if not, all arrays are empty."""
        count = self._alike()
        _require(count in (0, 2))
        return count == 2

    def end_of_array(self) -> None:
        """End the arrays that had an item."""
        _require(self._alike() == 0)

    def packed(self, width: int) -> bytes:
        """Read packed bytes of all records, joined: `width` bytes of each record, or none of any."""
        length = self._alike()
        _require(length in (0, 2 * width))
        if not length:
            return b""
        octets: Octets = self._bytes[self._at[:, None] + np.arange(width)]
        self._at = self._at + width
        return bytes(octets)

    def rest(self) -> list[bytes]:
        """The remaining bytes of each record."""
        _require((self._at <= self._ends).all())
        joined = self._joined
        return [joined[start:end] for start, end in zip(self._at.tolist(), self._ends.tolist(), strict=True)]

    def _alike(self) -> int:
        """Read one byte, which must be the same in all records."""
        octets = self._bytes[self._at]
        _require((octets == octets[0]).all())
        self._at = self._at + 1
        return int(octets[0])

    def _span(self) -> tuple[Places, Places]:
        sizes = self._bytes[self._at]
        _require(not (sizes & _NO_SHORT_LENGTH).any())
        starts = self._at + 1
        self._at = ends = starts + (sizes >> 1)
        return starts, ends

    def _cut(self, starts: Places, ends: Places) -> list[str]:
        text = self._text
        texts = [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        _require("".join(texts).isascii())
        return texts


def _is_one(texts: list[str]) -> bool:
    return texts.count(texts[0]) == len(texts)


def _require(regular: Any) -> None:
    if not regular:
        raise Irregular
