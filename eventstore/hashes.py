"""The digests by which replicas compare what they read and what they made of it.

They tell replicas of one plane from each other and a log from a damaged copy of it, so they are fast, not secret: xxh3
keeps up with batches of joins where a cryptographic hash would cost a quarter of the fold.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_128_digest, xxh3_128_intdigest

from eventstore.log import Record

MODULUS = 1 << 128

_RECORD = struct.Struct(">qqI16s")
_KEY = struct.Struct(">II")


def content_of(value: bytes) -> bytes:
    """The digest of a record value. Equal events have equal ones, as encoding is deterministic."""
    return xxh3_128_digest(value)


def record_hash(record: Record, content: bytes) -> bytes:
    """The digest of a whole record: offset, append time, key, headers and value. `content` is that of its value."""
    packed = _RECORD.pack(record.offset, record.timestamp_ms, len(record.key), content) + record.key
    if record.headers:
        packed += repr(record.headers).encode()
    return xxh3_128_digest(packed)


def chained(running: bytes, digest: bytes) -> bytes:
    """The running hash after the record with this digest."""
    return xxh3_128_digest(running + digest)


def row_hash(table: str, key: str, row: bytes) -> int:
    """The share of one saved row in the digest of its partition, which is their sum modulo 2^128."""
    name, text = table.encode(), key.encode()
    return xxh3_128_intdigest(_KEY.pack(len(name), len(text)) + name + text + row)
