"""Several records, frames or rows in one input. Each is preceded by a number and its size."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_HEAD = struct.Struct(">hH")
PARTS_MAX = 200


class Part(NamedTuple):
    """A part with its number. For a record, the number is the time since the previous record in tenths of a second."""

    number: int
    content: bytes


def joined(parts: Iterable[Part]) -> bytes:
    """The input with these parts."""
    return b"".join(_HEAD.pack(part.number, len(part.content)) + part.content for part in parts)


def split(data: bytes) -> list[Part]:
    """The parts of any input. The last one may be shorter than its size."""
    parts: list[Part] = []
    at = 0
    while at + _HEAD.size <= len(data) and len(parts) < PARTS_MAX:
        number, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts.append(Part(number, data[at : at + size]))
        at += size
    return parts
