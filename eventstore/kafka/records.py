"""Decodes fetched records whose header names are not UTF-8.

Any Kafka client can write such a record, and a broker keeps it. The library's compiled reader fails on it, in every
replica and after every restart. This module decodes the batches on which that reader fails. It escapes the invalid
bytes of header names, in the same way on every replica, and returns all other bytes unchanged.

The library has no hook for this, so this module replaces the class from which the library's fetcher gets batches. The
replacement costs one call per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import unpack_from
from typing import Any, NamedTuple

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

_HEAD_BYTES = 12
"""The head of a batch: its base offset, and the number of bytes that follow."""


class FetchedRecord(NamedTuple):
    """A record with the attributes that the fetcher reads."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    checksum: None = None


class TolerantBatch:
    """A batch of the library that decodes records itself where the library's decoder fails."""

    def __init__(self, compiled: Any, packed: bytes) -> None:
        self._compiled = compiled
        self._packed = packed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __next__(self) -> Any:
        return next(self._compiled)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._compiled:
                yield record
                read += 1
        except UnicodeDecodeError:
            yield from islice(_decoded(self._packed), read, None)


class TolerantRecords:
    """The batches of one fetch response, with the interface of the library's `MemoryRecords`."""

    def __init__(self, packed: bytes) -> None:
        self._compiled: Any = MemoryRecords(packed)
        self._packed = packed
        self._at = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def next_batch(self) -> TolerantBatch:
        start = self._at
        (size,) = unpack_from(">i", self._packed, start + 8)
        self._at = start + _HEAD_BYTES + size
        return TolerantBatch(self._compiled.next_batch(), self._packed[start : self._at])


def install_tolerant_reader() -> None:
    """Make every consumer of this process use the tolerant decoder."""
    fetcher.MemoryRecords = TolerantRecords


def _decoded(packed: bytes) -> Iterator[FetchedRecord]:
    """Decode all records of a batch (version 2, the only one with headers)."""
    batch = _DefaultRecordBatchPy(packed)
    batch._maybe_uncompress()
    buffer, at = batch._buffer, batch._pos
    for _ in range(batch._num_records):
        _, at = decode_varint(buffer, at)
        late_ms, at = decode_varint(buffer, at + 1)  # after the record's attributes, which are unused
        delta, at = decode_varint(buffer, at)
        key, at = _nullable(buffer, at)
        value, at = _nullable(buffer, at)
        count, at = decode_varint(buffer, at)
        headers = []
        for _ in range(count):
            name, at = _nullable(buffer, at)
            content, at = _nullable(buffer, at)
            headers.append(((name or b"").decode(errors="backslashreplace"), content))
        stamped = batch.timestamp_type == batch.LOG_APPEND_TIME
        timestamp = batch.max_timestamp if stamped else batch.first_timestamp + late_ms
        yield FetchedRecord(batch.base_offset + delta, timestamp, batch.timestamp_type, key, value, headers)


def _nullable(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(buffer, at)
    return (None, at) if size < 0 else (bytes(buffer[at : at + size]), at + size)
