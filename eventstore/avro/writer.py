"""Encodes Avro bodies with one function per schema, compiled from text like those of `eventstore/avro/reader.py`.

Every command, forward and decision is encoded on the event loop that serves callers. fastavro needs dictionaries and
encodes each string of a column separately. This writer joins a column of a thousand names and encodes it once. The
tests compare its output with fastavro byte by byte. Maps are written in the order of their keys: equal events are
equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

RecordWriter: TypeAlias = Callable[[Any], bytes]
"""Encodes an event as the bytes of its body."""

_SHORT = 64
"""Numbers and lengths below this take one byte, which is an ASCII character."""

_COLUMN_ITEMS = 16
"""Minimum number of items for which writing all of them at once is faster."""

_FIELDS_KEPT = 4_096

_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)

_ONE_BYTE = bytes(number << 1 for number in range(_SHORT)).ljust(256)
_LENGTHS = [_ONE_BYTE[length : length + 1] for length in range(_SHORT)]
_PREFIXES = [chr(length << 1) for length in range(_SHORT)]


def compile_writer(document: Mapping[str, Any], header: bytes) -> RecordWriter:
    """Compile the writer of a record schema, whose bodies begin with this header."""
    lines = ["def write(e):", "    o = bytearray(HEADER)", *_indented(_record(document, "e")), "    return bytes(o)"]
    scope: dict[str, Any] = {"HEADER": header, "LENGTHS": _LENGTHS, "long": _field, "longs": _longs, "texts": _texts}
    exec(compile("\n".join(lines), f"<avro {document['name']}>", "exec"), scope)
    writer: RecordWriter = scope["write"]
    return writer


def _record(document: Mapping[str, Any], value: str) -> list[str]:
    return [line for field in document["fields"] for line in _value(field["type"], f"{value}.{field['name']}", 0)]


def _value(kind: Any, value: str, depth: int) -> list[str]:
    """Generate the lines of Python that write a value of this type; `value` is the expression of the value."""
    item = f"v{depth}"
    match kind:
        case "string":
            return [f"b = {value}.encode()", *_SIZED]
        case "bytes":
            return [f"b = {value}", *_SIZED]
        case "long":
            return [f"o += long({value})"]
        case "boolean":
            return [f"o.append(True if {value} else False)"]
        case {"type": "array", "items": ("long" | "string") as items}:
            return _block(value, [f"o += {items.replace('string', 'text')}s({value})"])
        case {"type": "array", "items": items}:
            return _block(value, [f"last{depth} = None", f"for {item} in {value}:", *_indented(_unlike(items, depth))])
        case {"type": "map", "values": values}:
            lines = [*_value("string", item, depth), *_value(values, f"{value}[{item}]", depth + 1)]
            return _block(value, [f"for {item} in sorted({value}):", *_indented(lines)])
        case {"type": "record"}:
            return _record(kind, value)
    raise ValueError(f"schema: type {kind!r} is not supported in events")


def _unlike(items: Any, depth: int) -> list[str]:
    """Generate the lines that write one item. If the item is the same object as the item before it, its bytes are
    copied and not encoded again: consecutive details of decisions are often one object."""
    item, last, at, end = (f"{name}{depth}" for name in ("v", "last", "at", "end"))
    copied = [f"if {item} is {last}:", f"    o += o[{at}:{end}]", "    continue"]
    return [*copied, f"{last}, {at} = {item}, len(o)", *_value(items, item, depth + 1), f"{end} = len(o)"]


_SIZED = ["n = len(b)", f"o += LENGTHS[n] if n < {_SHORT} else long(n)", "o += b"]
"""Generated lines that write bytes after their length. Most are short, and a call for each would double the cost."""


def _block(value: str, items: list[str]) -> list[str]:
    """Write an array or a map: one block with its item count, and the empty block that ends it."""
    return [f"if {value}:", f"    o += long(len({value}))", *_indented(items), "o.append(0)"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def long(number: int) -> bytes:
    """Encode a number: zigzag, seven bits per byte."""
    left = number << 1 ^ number >> 63
    if left < 128:
        return b"%c" % left
    if left >> 64:
        raise OverflowError(f"{number} needs more than 64 bits")
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


_field = lru_cache(_FIELDS_KEPT)(long)
"""Encode a number that is a field of its own. Most of these are times, and a batch and its decisions have few
distinct times, so a cache answers most calls."""


def text(value: str) -> bytes:
    """Encode a string after its length in bytes."""
    encoded = value.encode()
    size = len(encoded)
    return (_LENGTHS[size] if size < _SHORT else long(size)) + encoded


def _longs(column: Sequence[int]) -> bytes:
    if len(column) < _COLUMN_ITEMS:
        return b"".join(map(long, column))
    if min(column) >= 0 and max(column) < _SHORT:
        return bytes(column).translate(_ONE_BYTE)
    distinct = set(column)
    if len(distinct) * _COLUMN_ITEMS <= len(column):
        written = {number: long(number) for number in distinct}
        return b"".join(map(written.__getitem__, column))
    numbers = np.fromiter(column, np.int64, len(column))
    left = (numbers << 1 ^ numbers >> 63).view(np.uint64)[:, None] >> _SHIFTS
    left = left[:, : np.count_nonzero(left.any(axis=0)) or 1]
    octets = left.astype(np.uint8) | 128
    octets[left < 128] &= 127
    is_written = left > 0
    is_written[:, 0] = True
    return octets[is_written].tobytes()


def _texts(column: Sequence[str]) -> bytes:
    """Encode texts as one string with the lengths as characters between them, if all are short and ASCII, as names and
    ids are.
    """
    if len(column) >= _COLUMN_ITEMS:
        lengths = set(map(len, column))
        if max(lengths) < _SHORT:
            if len(lengths) == 1:
                prefix = _PREFIXES[lengths.pop()]
                whole = prefix + prefix.join(column)
            else:
                prefixes = map(_PREFIXES.__getitem__, map(len, column))
                whole = "".join(chain.from_iterable(zip(prefixes, column, strict=True)))
            if whole.isascii():
                return whole.encode()
    return b"".join(map(text, column))
