"""Ids of used commands without their outcomes: the last million exactly, older ones as ranges.

An exact id costs 16 bytes. The ids are kept in chunks in order of arrival, so the oldest are dropped first and a save
writes only the changed chunks. A dropped id belongs to a range from then on, for ever.

Ranges stay separate where no id was used for ten minutes or more. While a clock runs fast, ids with future times are
used. A range that joined these ids with earlier ones would contain the present time. If there are more than 64 ranges,
the oldest are joined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

USED_MAX = 1_000_000
"""Maximum number of exact ids, 16 MB."""

CHUNK_IDS = 4_096
"""Ids per chunk, which is saved as one row of 64 kB."""

RANGES_MAX = 64
GAP_MS = 600_000

_ID_BYTES = 16


class IdRange(NamedTuple):
    """All ids from the first to the last, both included."""

    first: str
    last: str


class UsedIds:
    """Pure: a function of the added ids, in their order. `changed` and `dropped` are chunks to save."""

    __slots__ = ("_chunks", "_count", "_ids_max", "_latest", "_number", "changed", "dropped", "ranges")

    def __init__(self, ids_max: int = USED_MAX) -> None:
        self.ranges: tuple[IdRange, ...] = ()
        self.changed: set[int] = set()
        self.dropped: set[int] = set()
        self._ids_max = ids_max
        self._chunks: dict[int, bytes] = {}
        self._count = 0
        self._number = 0
        self._latest = ""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, command_id: str) -> bool:
        """Whether this id was used, or lies in a range of used ids."""
        if command_id > self._latest:
            return False
        packed = _packed((command_id,))
        return any(_holds(chunk, packed) for chunk in self._chunks.values()) or self.range_of(command_id) is not None

    def may_hold(self, first: str) -> bool:
        """Whether an id at or after this one may have been used."""
        return first <= self._latest

    def range_of(self, command_id: str) -> IdRange | None:
        """The range that this id lies in."""
        return next((found for found in self.ranges if found.first <= command_id <= found.last), None)

    def add(self, ids: Iterable[str]) -> None:
        """Add these used ids, all well formed."""
        fresh = sorted(ids)
        if not fresh:
            return
        self._latest = max(self._latest, fresh[-1])
        self._count += len(fresh)
        last = self._chunks.get(self._number, b"")
        room = CHUNK_IDS - len(last) // _ID_BYTES
        if room > 0:
            self._put(self._number, b"".join(sorted([*_pieces(last), *_pieces(_packed(fresh[:room]))])))
        for start in range(max(room, 0), len(fresh), CHUNK_IDS):
            self._number += 1
            self._put(self._number, _packed(fresh[start : start + CHUNK_IDS]))
        while self._count > self._ids_max:
            self._drop(next(iter(self._chunks)))

    def chunks(self) -> Mapping[int, bytes]:
        """The exact ids: sorted ids of 16 bytes by number of their chunk, the oldest first."""
        return self._chunks

    def mark_saved(self) -> None:
        """Mark all changes as durable."""
        self.changed.clear()
        self.dropped.clear()

    def load(self, ranges: Sequence[IdRange], chunks: Iterable[tuple[int, bytes]]) -> None:
        """Fill an empty set from its saved chunks by number."""
        self.ranges = tuple(ranges)
        self._chunks = dict(sorted(chunks))
        self._count = sum(len(chunk) for chunk in self._chunks.values()) // _ID_BYTES
        self._number = max(self._chunks, default=0)
        last = [_text(chunk[-_ID_BYTES:]) for chunk in self._chunks.values()]
        self._latest = max([*last, *(found.last for found in self.ranges)], default="")

    def _put(self, number: int, chunk: bytes) -> None:
        self._chunks[number] = chunk
        self.changed.add(number)

    def _drop(self, number: int) -> None:
        chunk = self._chunks.pop(number)
        self._count -= len(chunk) // _ID_BYTES
        self.changed.discard(number)
        self.dropped.add(number)
        self.ranges = _joined([*self.ranges, *_ranges_of(chunk)])


def _ranges_of(chunk: bytes) -> Iterator[IdRange]:
    """Ranges that cover the ids of a chunk, separated at gaps."""
    first = last = chunk[:_ID_BYTES]
    for piece in _pieces(chunk):
        if _time_ms(piece) - _time_ms(last) >= GAP_MS:
            yield IdRange(_text(first), _text(last))
            first = piece
        last = piece
    yield IdRange(_text(first), _text(last))


def _joined(ranges: Iterable[IdRange]) -> tuple[IdRange, ...]:
    """Ranges that cover these ranges, in order: at most 64, with ten minutes or more between two of them."""
    joined: list[IdRange] = []
    for first, last in sorted(ranges):
        if joined and _time_ms(_packed((first,))) - _time_ms(_packed((joined[-1].last,))) < GAP_MS:
            joined[-1] = IdRange(joined[-1].first, max(joined[-1].last, last))
        else:
            joined.append(IdRange(first, last))
    beyond = len(joined) - RANGES_MAX
    if beyond > 0:
        joined[: beyond + 1] = [IdRange(joined[0].first, joined[beyond].last)]
    return tuple(joined)


def _time_ms(packed: bytes) -> int:
    """The time in an id: its first six bytes."""
    return int.from_bytes(packed[:6], "big")


def _holds(chunk: bytes, packed: bytes) -> bool:
    if not chunk[:_ID_BYTES] <= packed <= chunk[-_ID_BYTES:]:
        return False
    found = bisect_left(range(len(chunk) // _ID_BYTES), packed, key=lambda index: _piece(chunk, index))
    return _piece(chunk, found) == packed


def _piece(chunk: bytes, index: int) -> bytes:
    return chunk[index * _ID_BYTES : (index + 1) * _ID_BYTES]


def _pieces(chunk: bytes) -> Iterator[bytes]:
    return (chunk[start : start + _ID_BYTES] for start in range(0, len(chunk), _ID_BYTES))


def _packed(ids: Iterable[str]) -> bytes:
    """Ids as 16 bytes each, which sort as the ids do."""
    return bytes.fromhex("".join(ids).replace("-", ""))


def _text(packed: bytes) -> str:
    text = packed.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
