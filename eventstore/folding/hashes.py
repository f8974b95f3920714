"""Hashes of records and of folded state, which replicas compare.

They detect differences between replicas, and a damaged copy of a log. They protect against faults, not against
forgery: xxh3 is fast enough for batches of joins, where a cryptographic hash would cost a quarter of the fold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh3_128_intdigest

from eventstore.log import Record

MODULUS = 1 << 128

_RECORD = struct.Struct(">qqI16s")


def value_digest(value: bytes) -> bytes:
    """The digest of a record value. Equal events have equal digests, because encoding is deterministic."""
    return xxh3_128_digest(value)


def running_hash(running: bytes, record: Record, content: bytes) -> bytes:
    """The running hash after this record. It covers the record's offset, append time, key, headers and value; `content`
    is the digest of the value."""
    offset, timestamp_ms, key, _, headers = record
    packed = running + _RECORD.pack(offset, timestamp_ms, len(key), content) + key
    return xxh3_128_digest(packed + repr(headers).encode() if headers else packed)


def running_hash_all(
    running: bytes, offsets: Sequence[int], append_ms: Sequence[int], keys: Sequence[bytes], contents: Sequence[bytes]
) -> bytes:
    """The `running_hash` after each of these records, which have no headers."""
    fixed = map(_RECORD.pack, offsets, append_ms, map(len, keys), contents)
    for packed, key in zip(fixed, keys, strict=True):
        running = xxh3_128_digest(running + packed + key)
    return running


def record_hash(record: Record) -> bytes:
    """The digest of a whole record."""
    return running_hash(b"", record, value_digest(record.value))


def row_hashes(table: str, keys: Iterable[str], rows: Iterable[bytes]) -> Iterator[int]:
    """The `row_hash` of each row."""
    seeds = map(xxh3_64_intdigest, [f"{table}\0{key}".encode() for key in keys])
    return map(xxh3_128_intdigest, rows, seeds)


def row_hash(table: str, key: str, row: bytes) -> int:
    """The hash of one saved row. The digest of a partition is the sum of its row hashes modulo 2^128."""
    return xxh3_128_intdigest(row, xxh3_64_intdigest(f"{table}\0{key}".encode()))
