"""The records of an embedded log as rows of RocksDB: key layout, scans, and opening.

Row keys are topic, partition and offset, so a partition is one key range in order of offset. Offsets are dense: a gap
in a scan is damage. RocksDB raises a plain Exception, which becomes RocksError here, so that callers can tell it from
a bug. Opening tolerates a torn tail of the write-ahead log (records that were never synced). A directory with
damage in the middle of that log is not opened, because acknowledged records would be dropped silently.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
from rocksdict import AccessType, DBCompressionType, DBRecoveryMode, Options, Rdict, WriteBatch, WriteOptions

from eventstore.errors import FatalError, LogMismatch, LogUnavailable
from eventstore.log import Headers, Partition, Record

_HEADER_KEY = b"\x00header"
_STEP_BACK = b"\x00back\x00"
"""Prefix of the key of a mark; the key of a row follows it. The mark records that the clock had stepped back before the
row was written.
"""
_FORMAT = 1
_KEY_TAIL = struct.Struct(">IQ")
_ROW_HEAD = struct.Struct(">QI")
_HEADERS_HEAD = struct.Struct(">I")
_HAS_HEADERS = 1 << 31
_WRITE_BUFFER_BYTES = 16 << 20
OPEN_FILES_MAX = 128
"""Maximum number of files that the owner of a log keeps open. Without a limit RocksDB keeps all of them open."""
ALL_FILES = -1
"""No limit for a secondary: it must keep every file open, because the owner deletes files that the secondary reads."""
_BATCH_RECORDS = 512
_BATCH_BYTES = 512 << 10


class RocksError(Exception):
    """RocksDB failed to read or write."""


class LogHeader(msgspec.Struct, frozen=True):
    """The metadata of a log directory."""

    format: int
    partition_count: int


class Bounds(NamedTuple):
    """The range of offsets of a partition, and the append time of its last record."""

    begin: int = 0
    end: int = 0
    last_ms: int = 0


class LogRow(NamedTuple):
    """One record to write."""

    partition: Partition
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: Headers = ()


class Rocks:
    """One open RocksDB. No iterator outlives a call: an open iterator would keep the directory locked."""

    def __init__(self, path: Path, access: AccessType, open_files: int = OPEN_FILES_MAX) -> None:
        self.path = path
        with _rocks_errors():
            self._db = Rdict(str(path), _options(open_files), access_type=access)
        self._last_ms: dict[Partition, int] = {}

    def header(self) -> LogHeader | None:
        """The header of the directory, or None if the directory was just made."""
        with _rocks_errors():
            raw = self._db.get(_HEADER_KEY)
        return None if raw is None else msgspec.json.decode(raw, type=LogHeader)

    def write_header(self, partition_count: int) -> None:
        """Write the partition count, which never changes."""
        batch = WriteBatch(raw_mode=True)
        batch.put(_HEADER_KEY, msgspec.json.encode(LogHeader(_FORMAT, partition_count)))
        synced = WriteOptions()
        synced.sync = True
        with _rocks_errors():
            self._db.write(batch, synced)

    def write(self, rows: Sequence[LogRow]) -> None:
        """Write all of these rows. They are durable after the next `sync`; an earlier crash loses a suffix of them."""
        batch = WriteBatch(raw_mode=True)
        for row in rows:
            key = _row_key(row.partition, row.offset)
            batch.put(key, _packed(row))
            if row.timestamp_ms < self._last_written_ms(row.partition):
                batch.put(_STEP_BACK + key, b"")
            self._last_ms[row.partition] = row.timestamp_ms
        with _rocks_errors():
            self._db.write(batch)

    def sync(self) -> None:
        """Make everything written so far durable. Other threads run meanwhile: `flush_wal` releases the interpreter
        lock, `write` does not.
        """
        with _rocks_errors():
            self._db.flush_wal(True)

    def delete_before(self, partition: Partition, position: int) -> None:
        """Drop the rows of a partition before a position; durable after the next `sync`."""
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(_row_key(partition, 0), _row_key(partition, position))
        with _rocks_errors():
            self._db.write(batch)

    def bounds(self, partition: Partition) -> Bounds:
        """Read the bounds of a partition from the disk."""
        with _rocks_errors():
            rows = self._db.iter()
            rows.seek(_row_key(partition, 0))
            rows.status()  # raises if an unreadable row ended the iteration
            if not rows.valid() or not rows.key().startswith(_prefix(partition)):
                return Bounds()
            begin = _offset(rows.key())
            rows.seek_for_prev(_row_key(partition, (1 << 64) - 1))
            rows.status()
            timestamp_ms, _ = _ROW_HEAD.unpack_from(rows.value())
            return Bounds(begin, _offset(rows.key()) + 1, timestamp_ms)

    def all_bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        """The bounds of these partitions."""
        return {partition: self.bounds(partition) for partition in partitions}

    def scan(self, partition: Partition, start: int, end: int) -> list[Record]:
        """Read one batch of records from `start` on, none at or after `end`. A batch takes a few milliseconds at most.

        Raises LogMismatch if a record is missing, RocksError if one cannot be read.
        """
        stop = min(end, start + _BATCH_RECORDS)
        records: list[Record] = []
        size, offset, head = 0, start, _ROW_HEAD.size
        with _rocks_errors():
            rows = cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=_row_key(partition, start)))
            for key, row in rows:
                if _offset(key) != offset:
                    break
                timestamp_ms, key_length = _ROW_HEAD.unpack_from(row)
                if key_length & _HAS_HEADERS:
                    records.append(_with_headers(offset, row))
                else:
                    body = head + key_length
                    records.append(Record(offset, timestamp_ms, row[head:body], row[body:]))
                size += len(row)
                offset += 1
                if offset == stop or size >= _BATCH_BYTES:
                    return records
            self._check_readable(_row_key(partition, offset))
        raise LogMismatch(f"log directory {self.path}: record {offset} of {partition} is missing")

    def first_at(self, partition: Partition, time_ms: int, begin: int, end: int) -> int:
        """The first of these offsets that was appended at `time_ms` or later; the end if there is none.

        Append times rise, except at the offsets where the clock was set back. These offsets divide the log into ranges
        of rising times, and the record is in the first range that ends at `time_ms` or later.
        """
        edges = [begin, *self._step_backs(partition, begin, end), end]
        for first, behind in pairwise(edges):
            if first < behind and self._timestamp_ms(partition, behind - 1) >= time_ms:
                return bisect_left(
                    range(behind), time_ms, lo=first, key=lambda offset: self._timestamp_ms(partition, offset)
                )
        return end

    def _step_backs(self, partition: Partition, begin: int, end: int) -> list[int]:
        """The offsets in this range at which the clock had stepped back."""
        before = _STEP_BACK + _row_key(partition, end)
        with _rocks_errors():
            marks = cast("Iterator[bytes]", self._db.keys(from_key=_STEP_BACK + _row_key(partition, begin + 1)))
            found = [_offset(mark) for mark in takewhile(lambda mark: mark < before, marks)]
            self._check_readable(_STEP_BACK + _row_key(partition, found[-1] + 1 if found else begin + 1))
            return found

    def _check_readable(self, key: bytes) -> None:
        """Raise unless the next row from this key on can be read: an iteration ends at an unreadable row without an
        error.
        """
        rows = self._db.iter()
        rows.seek(key)
        rows.status()

    def _last_written_ms(self, partition: Partition) -> int:
        known = self._last_ms.get(partition)
        return self.bounds(partition).last_ms if known is None else known

    def _timestamp_ms(self, partition: Partition, offset: int) -> int:
        with _rocks_errors():
            row = self._db.get(_row_key(partition, offset))
        if row is None:
            raise LogMismatch(f"log directory {self.path}: record {offset} of {partition} is missing")
        timestamp_ms, _ = _ROW_HEAD.unpack_from(row)
        return int(timestamp_ms)

    def catch_up(self) -> bool:
        """Read what the owner has written since the last call, as a secondary. False if there was nothing new."""
        before = self._db.latest_sequence_number()
        with _rocks_errors():
            self._db.try_catch_up_with_primary()
        return bool(self._db.latest_sequence_number() != before)

    def close(self) -> None:
        """Release the directory. RocksDB releases it even if closing fails."""
        with _rocks_errors():
            self._db.close()


def _packed(row: LogRow) -> bytes:
    """Encode a row: append time, key length, key, value. A bit of the key length marks that headers precede the key."""
    if not row.headers:
        return _ROW_HEAD.pack(row.timestamp_ms, len(row.key)) + row.key + row.value
    headers = msgspec.msgpack.encode(row.headers)
    head = _ROW_HEAD.pack(row.timestamp_ms, len(row.key) | _HAS_HEADERS)
    return b"".join((head, _HEADERS_HEAD.pack(len(headers)), headers, row.key, row.value))


def _with_headers(offset: int, row: bytes) -> Record:
    timestamp_ms, key_length = _ROW_HEAD.unpack_from(row)
    start = _ROW_HEAD.size + _HEADERS_HEAD.size
    key = start + _HEADERS_HEAD.unpack_from(row, _ROW_HEAD.size)[0]
    value = key + (key_length & ~_HAS_HEADERS)
    headers = msgspec.msgpack.decode(row[start:key], type=Headers)
    return Record(offset, timestamp_ms, row[key:value], row[value:], headers)


def directory_identity(path: Path) -> str:
    """The random id that RocksDB gave the directory, which distinguishes it from a replacement of the same name.

    Empty if there is no such directory; LogUnavailable if the id cannot be read, for example at the limit of open
    files.
    """
    try:
        return (path / "IDENTITY").read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise LogUnavailable(f"log directory {path} cannot be read: {error.strerror}") from error


def open_rocks(path: Path, access: AccessType, open_files: int = OPEN_FILES_MAX) -> Rocks:
    """Open a directory. Raises FatalError with the reason in one sentence."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        return Rocks(path, access, open_files)
    except OSError as error:
        raise FatalError(f"log directory {path} cannot be created: {error.strerror or error}") from error
    except RocksError as error:
        if "lock hold by" in str(error) or "While lock file" in str(error):
            raise FatalError(
                f"log directory {path} is in use by another process: only one process may write an embedded log"
            ) from error
        raise FatalError(f"log directory {path} cannot be opened: {error}") from error


def check_header(path: Path, header: LogHeader, partition_count: int | None) -> int:
    """The partition count of the log. Raises LogMismatch for a log of another kind."""
    if header.format != _FORMAT:
        raise LogMismatch(f"log directory {path} has format {header.format}; this program reads format {_FORMAT}")
    if partition_count is not None and header.partition_count != partition_count:
        raise LogMismatch(
            f"log directory {path} has {header.partition_count} partitions, not {partition_count}: "
            "the count is fixed when a log is created"
        )
    return header.partition_count


@contextmanager
def _rocks_errors() -> Iterator[None]:
    """Convert the bare Exception that RocksDB's binding raises for every failure to RocksError."""
    try:
        yield
    except Exception as error:
        raise RocksError(str(error)) from error


def _options(open_files: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_max_open_files(open_files)
    return options


def _prefix(partition: Partition) -> bytes:
    return partition.topic.encode() + b"\x00" + partition.number.to_bytes(4, "big")


def _row_key(partition: Partition, offset: int) -> bytes:
    return partition.topic.encode() + b"\x00" + _KEY_TAIL.pack(partition.number, offset)


def _offset(row_key: bytes) -> int:
    return int.from_bytes(row_key[-8:], "big")
