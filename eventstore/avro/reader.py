"""Decodes Avro bodies with one function per schema, compiled from generated text that reads the fields in order.

Decoding dominates the cost of folding. On a single event, a compiled function takes half the time of fastavro, because
it builds the event instead of a dictionary. On long columns of numbers, which numpy decodes, it takes a fifth of that
time. The writer is writer.py. The tests compare both with fastavro.

A declared length allocates nothing: slices end where the bytes end, and every item takes at least one byte. If a value
ends past the last byte, the next read fails. If it was the last value, the caller detects it: the returned offset
differs from the number of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, TypeAlias

import numpy as np

RecordReader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Decodes a body in bytes from an offset; returns the value and the offset after it. Raises IndexError or ValueError.
"""

_COLUMN_ITEMS = 64
"""Minimum number of items (numbers or strings) for which reading all of them at once is faster."""

_RUN_ITEMS = 512
"""Maximum number of strings of equal length that are sliced from their column together."""

_EQUAL_ITEMS = 16
"""Minimum number of equal items (numbers or strings) for which reading one value for all is faster. Nodes that joined
together have many equal values.
"""

_LONG_BYTES = 10

_ONE_BYTE = bytes((n >> 1 ^ -(n & 1)) & 255 for n in range(128)).ljust(256)
"""The numbers that fit one byte, indexed by that byte, in two's complement."""


def compile_reader(document: Mapping[str, Any], makes: Mapping[str, Callable[..., Any]]) -> RecordReader:
    """Compile the reader of a record schema. `makes` maps the name of each record to its constructor, which takes the
    fields in their order."""
    names = (f"v{number}" for number in count())
    body, value = _record(document, names)
    source = "\n".join(["def read(b, i):", *_indented(body), f"    return {value}, i"])
    scope: dict[str, Any] = {**makes, "_long": _long, "_length": _length, "_block": _block}
    scope |= {"_column": _column, "_texts": _texts}
    exec(compile(source, f"<avro {document['name']}>", "exec"), scope)
    reader: RecordReader = scope["read"]
    return reader


def _record(document: Mapping[str, Any], names: Iterator[str]) -> tuple[list[str], str]:
    lines: list[str] = []
    values = []
    for field in document["fields"]:
        field_lines, value = _value(field["type"], names)
        lines += field_lines
        values.append(value)
    return lines, f"{document['name']}({', '.join(values)})"


def _value(kind: Any, names: Iterator[str]) -> tuple[list[str], str]:
    """Generate the lines of Python that read a value of this type. Returns the lines, and the expression for the value
    that they have read."""
    target = next(names)
    match kind:
        case "string":
            return [*_SIZE, f"{target} = b[i : i + n].decode()", "i += n"], target
        case "bytes":
            return [*_SIZE, f"{target} = b[i : i + n]", "i += n"], target
        case "long":
            return [*_NUMBER, f"{target} = n >> 1 ^ -(n & 1)"], target
        case "boolean":
            return [f"{target} = (False, True)[b[i]]", "i += 1"], target
        case {"type": "array", "items": items}:
            lines, value = _value(items, names)
            whole = {"long": "_column", "string": "_texts"}.get(items) if isinstance(items, str) else None
            column = [f"if n >= {_COLUMN_ITEMS}:", f"    i = {whole}(b, i, n, {target})", "    continue"]
            return _blocks(f"{target} = []", column if whole else [], [*lines, f"{target}.append({value})"]), target
        case {"type": "map", "values": values}:
            key_lines, key = _value("string", names)
            lines, value = _value(values, names)
            return _blocks(f"{target} = {{}}", [], [*key_lines, *lines, f"{target}[{key}] = {value}"]), target
        case {"type": "record"}:
            return _record(kind, names)
    raise ValueError(f"schema: type {kind!r} is not supported in events")


_SIZE = ["n = b[i]", "if n & 129:", "    n, i = _length(b, i)", "else:", "    n >>= 1", "    i += 1"]
_NUMBER = ["n = b[i]", "i += 1", "if n > 127:", "    n, i = _long(b, i, n)"]
_BLOCK = [line.replace("_length", "_block") for line in _SIZE]


def _blocks(empty: str, column: list[str], item: list[str]) -> list[str]:
    """Read an array or a map: blocks of items, each with its count, until a block of 0 items."""
    loop = [*_BLOCK, "if not n:", "    break", *column, "for _ in range(n):", *_indented(item)]
    return [empty, "while True:", *_indented(loop)]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _long(b: bytes, i: int, n: int) -> tuple[int, int]:
    """Read the rest of a number whose first byte is `n`; the result is still zigzag-encoded."""
    n &= 127
    for shift in range(7, 7 * _LONG_BYTES, 7):
        byte = b[i]
        i += 1
        n |= (byte & 127) << shift
        if byte < 128:
            if n >> 64:
                break
            return n, i
    raise ValueError(f"number longer than 64 bits at byte {i}")


def _length(b: bytes, i: int) -> tuple[int, int]:
    """Read a length of more than one byte."""
    n, i = _long(b, i + 1, b[i]) if b[i] > 127 else (b[i], i + 1)
    if n & 1:
        raise ValueError(f"negative length at byte {i}")
    return n >> 1, i


def _block(b: bytes, i: int) -> tuple[int, int]:
    """Read the item count of a block. After a negative count comes the size of the block, which only skipping needs."""
    n, i = _long(b, i + 1, b[i]) if b[i] > 127 else (b[i], i + 1)
    if not n & 1:
        return n >> 1, i
    _, i = _long(b, i + 1, b[i]) if b[i] > 127 else (b[i], i + 1)
    return (n >> 1) + 1, i


def _equal(b: bytes, i: int, end: int, n: int) -> int:
    """Count how many of the next `n` items equal the first one before a different item comes.

    The bytes of the first item are `b[i:end]`. The search doubles its step and then halves it, because a long first
    step would take quadratic time on a column of many short runs.
    """
    first, step, found, more, is_doubling = b[i:end], end - i, 1, 1, True
    while more:
        here = i + found * step
        there = here + more * step
        if found + more <= n and there <= len(b) and b[here:there] == first * more:
            found += more
        else:
            is_doubling = False
        more = more << 1 if is_doubling else more >> 1
    return found


def _column(b: bytes, i: int, n: int, into: list[int]) -> int:
    """Append `n` numbers; return the offset after them."""
    short = b[i : i + n]
    if len(short) == n and short.isascii():
        into += memoryview(short.translate(_ONE_BYTE)).cast("b")
        return i + n
    while n:
        zigzag, end = _long(b, i + 1, b[i]) if b[i] > 127 else (b[i], i + 1)
        equal = _equal(b, i, end, n)
        if equal < _EQUAL_ITEMS:
            return _number_by_number(b, i, n, into)
        into += [zigzag >> 1 ^ -(zigzag & 1)] * equal
        i += equal * (end - i)
        n -= equal
    return i


def _number_by_number(b: bytes, i: int, n: int, into: list[int]) -> int:
    raw = np.frombuffer(b, np.uint8, min(len(b) - i, n * _LONG_BYTES), i)
    ends = np.flatnonzero(raw < 128)[:n]
    if len(ends) < n:
        raise ValueError(f"{n} numbers declared at byte {i}, {len(ends)} found")
    end = int(ends[-1]) + 1
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends + 1 - starts
    if widths.max() > _LONG_BYTES or (raw[ends[widths == _LONG_BYTES]] > 1).any():
        raise ValueError(f"number longer than 64 bits between bytes {i} and {i + end}")
    places = np.arange(end) - np.repeat(starts, widths)
    parts = (raw[:end] & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    zigzag = np.add.reduceat(parts, starts)
    into.extend(((zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64)).tolist())
    return i + end


def _texts(b: bytes, i: int, n: int, into: list[str]) -> int:
    """Append `n` strings; return the offset after them. A run of strings of equal length, such as ids, takes a third of
    the time.

    Equal neighbours share one object, because a fold may hold them for years.
    """
    while n:
        size = b[i]
        step = 1 + (size >> 1)
        equal = 1 if size & 129 else _equal(b, i, i + step, n)
        if equal >= _EQUAL_ITEMS:
            into += [b[i + 1 : i + step].decode()] * equal
            i += equal * step
            n -= equal
            continue
        count = min(n, _RUN_ITEMS)
        run = b[i : i + count * step]
        if size & 129 or run[::step] != run[:1] * count:
            count = min(n, _COLUMN_ITEMS)
            i = _text_by_text(b, i, count, into)
        else:
            into += _texts_of_one_length(run, step, count)
            i += count * step
        n -= count
    return i


def _texts_of_one_length(run: bytes, step: int, count: int) -> list[str]:
    """The strings of a run of equal length, each after a length of one byte."""
    apart = bytearray(run)
    apart[::step] = bytes(count)
    texts = apart.decode().split("\0")
    if len(texts) > count + 1:  # some strings contain a NUL
        return [run[j : j + step - 1].decode() for j in range(1, len(run), step)]
    return texts[1:]


def _text_by_text(b: bytes, i: int, n: int, into: list[str]) -> int:
    for _ in range(n):
        size, i = _length(b, i) if b[i] & 129 else (b[i] >> 1, i + 1)
        into.append(b[i : i + size].decode())
        i += size
    return i
