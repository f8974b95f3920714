"""Saved state in RocksDB: one WriteBatch per save, and checkpoints (hard links) for queries of the past.

Writes go to the write-ahead log without a sync: a killed process loses nothing, and after a power failure the log has
the records of the lost second. State that cannot be opened is refused with an error that says what to do: it is
derived from the log, and deleting it costs a replay.

After a failed write RocksDB refuses all further writes, even if the disk recovers. The store is therefore reopened for
the next save, once the disk accepts files again.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from rocksdict import AccessType, BlockBasedOptions, Checkpoint, Options, Rdict, ReadOptions, WriteBatch

from eventstore.disk_space import reserve_for_reopening
from eventstore.errors import FatalError
from eventstore.folding.hashes import row_hash, row_hashes
from eventstore.log import Partition
from eventstore.state_store.checkpoints import (
    CheckpointRetention,
    StateCheckpoint,
    checkpoint_name,
    checkpoints_in,
    prune,
)
from eventstore.state_store.store import EncodedRow, SaveBatch, SavedHead, SaveFailed, StateDamaged

_CHUNK = struct.Struct(">QQ")
_CHECKPOINTS = "checkpoints"
_HEAD = msgspec.msgpack.Decoder(SavedHead)
_RETENTION = CheckpointRetention()
_OWNER_KEY = b"owner"
_HEADS_PREFIX = b"h\x00"
_WRITE_BUFFER_BYTES = 32 << 20
_OPEN_FILES_MAX = 64
"""Maximum number of open files. Without a limit RocksDB keeps every file of the state open."""
_NO_GOOD = "read ({}); delete it to fold the log again"
_IN_USE = "opened ({}); another process uses it"
_NO_RIGHT = "written ({}); give this process write permission"
_NO_SPACE = "written ({}); free space on its disk"
_ADVICE = {
    "lock hold by": _IN_USE,
    "While lock file": _IN_USE,
    "Permission denied": _NO_RIGHT,
    "Operation not permitted": _NO_RIGHT,
    "Read-only file system": _NO_RIGHT,
    "No space left on device": _NO_SPACE,
    "Disk quota exceeded": _NO_SPACE,
}
"""The reason why saved state cannot be opened, by a part of RocksDB's message."""

logger = logging.getLogger(__name__)


class RocksStateReader:
    """The reading half of a StateStore, over an open database."""

    def __init__(self, path: Path, access: AccessType) -> None:
        self._path = path
        with self._advice():
            self._db = Rdict(str(path), _options(), access_type=access)

    def head(self, partition: Partition) -> SavedHead | None:
        head = self._get(_HEADS_PREFIX + str(partition).encode())
        return None if head is None else _HEAD.decode(head)

    def heads(self) -> list[SavedHead]:
        """The heads of all partitions."""
        return [_HEAD.decode(head) for _, head in self._scan(_HEADS_PREFIX)]

    def rows(self, partition: Partition, table: str) -> Iterator[tuple[str, bytes]]:
        prefix = _prefix(b"r", partition, table)
        return ((key[len(prefix) :].decode(), row) for key, row in self._scan(prefix))

    def ids(self, partition: Partition) -> Iterator[tuple[int, bytes]]:
        prefix = _prefix(b"l", partition)
        return ((_CHUNK.unpack(key[len(prefix) :])[0], chunk) for key, chunk in self._scan(prefix))

    def close(self) -> None:
        try:
            self._db.close()
        except Exception as error:  # close repeats the error of a failed write, which is harmless here
            logger.warning("saved state %s closed with an error: %s", self._path, error)

    def _get(self, key: bytes) -> bytes | None:
        with self._advice():
            value: bytes | None = self._db.get(key)
        return value

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(_after(prefix))
        last = b""
        with self._advice():
            for last, value in cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=prefix, read_opt=options)):
                yield last, value
        self._check_end(last, prefix, options)

    def _check_end(self, last: bytes, prefix: bytes, options: ReadOptions) -> None:
        """Raise StateDamaged if the rows ended early: an iteration ends at an unreadable row without an error."""
        rows = self._db.iter(options)
        try:
            rows.seek(last or prefix)
            if last:
                rows.next()
            rows.status()
        except Exception as error:  # the binding raises nothing more specific
            raise StateDamaged(f"saved state {self._path}: {error}") from error

    @contextmanager
    def _advice(self) -> Iterator[None]:
        """Convert an error of the binding to one that says what to do. The binding raises nothing more specific than
        Exception.
        """
        try:
            yield
        except Exception as error:
            advice = next((advice for word, advice in _ADVICE.items() if word in str(error)), _NO_GOOD)
            raise FatalError(f"saved state {self._path} cannot be {advice.format(error)}") from error


class RocksStore(RocksStateReader):
    """A StateStore in the folder `path`. With `owner`, opening checks that the state belongs to this replica."""

    def __init__(self, path: Path, owner: str = "", retention: CheckpointRetention = _RETENTION) -> None:
        path.mkdir(parents=True, exist_ok=True)
        super().__init__(path / "current", AccessType.read_write())
        self._checkpoints = path / _CHECKPOINTS
        self._retention = retention
        self._saved_positions: dict[Partition, int] = {}
        self._is_failing = False
        self._is_closed = False
        found = (self._get(_OWNER_KEY) or b"").decode()
        if owner and found and found != owner:
            self.close()
            raise FatalError(f"saved state {path} belongs to replica {found!r}, not {owner!r}")
        if owner and not found:
            with _save_errors():
                self._db.put(_OWNER_KEY, owner.encode())

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def batch(self, partition: Partition) -> SaveBatch:
        if self._is_failing and not self._is_closed:
            self._reopen()
        if partition not in self._saved_positions:
            with _save_errors():
                self._saved_positions[partition] = self._saved_position(partition)
        return _RocksBatch(self._db, partition, self._commit)

    def forget(self, partition: Partition) -> None:
        batch = WriteBatch(raw_mode=True)
        batch.delete(_HEADS_PREFIX + str(partition).encode())
        for kind in (b"r", b"l"):
            batch.delete_range(_prefix(kind, partition), _after(_prefix(kind, partition)))
        self._write(batch)
        self._saved_positions.pop(partition, None)

    def _commit(self, batch: WriteBatch, partition: Partition, head: SavedHead) -> None:
        self._write(batch)
        self._saved_positions[partition] = head.position

    def _write(self, batch: WriteBatch) -> None:
        try:
            with _save_errors():
                self._db.write(batch)
        except SaveFailed:
            self._is_failing = True
            raise

    def _reopen(self) -> None:
        """Reopen the database, once the disk accepts files.

        FatalError if the failed write has landed, or a saved row is missing: the digests of further saves would be
        wrong.
        """
        with _save_errors():
            reserve_for_reopening(self._path)
            with suppress(Exception):  # close repeats the failure that caused it
                self._db.close()
            self._db = Rdict(str(self._path), _options(), access_type=AccessType.read_write())
            found = {partition: self._saved_position(partition) for partition in self._saved_positions}
        if found != self._saved_positions:
            raise FatalError(f"saved state {self._path} differs from the last save; restart the process")
        self._is_failing = False

    def _saved_position(self, partition: Partition) -> int:
        head = self.head(partition)
        return -1 if head is None else head.position

    def flush(self) -> None:
        with _save_errors():
            self._db.flush(wait=False)

    async def checkpoint(self) -> None:
        with _save_errors():
            heads = self.heads()
            newest_ms = max((head.time_ms for head in heads), default=0)
            target = self._checkpoints / checkpoint_name(newest_ms, sum(head.position for head in heads))
            if heads and not target.exists():
                self._checkpoints.mkdir(exist_ok=True)
                Checkpoint(self._db).create_checkpoint(str(target))
            await prune(self._checkpoints, self._path, self._retention)


def list_checkpoints(path: Path) -> list[StateCheckpoint]:
    """The checkpoints of the store in this folder, oldest first. `open_checkpoint` opens one."""
    return checkpoints_in(path / _CHECKPOINTS)


def open_checkpoint(path: Path) -> RocksStateReader:
    """Open a checkpoint for reading. Concurrent readers, and writes to its store, are allowed."""
    return RocksStateReader(path, AccessType.read_only(error_if_log_file_exist=False))


class _RocksBatch:
    def __init__(
        self, db: Rdict, partition: Partition, commit: Callable[[WriteBatch, Partition, SavedHead], None]
    ) -> None:
        self._db = db
        self._commit = commit
        self._partition = partition
        self._ids: list[tuple[int, bytes]] = []
        self._batch = WriteBatch(raw_mode=True)

    def replace(self, table: str, rows: Sequence[EncodedRow]) -> int:
        prefix = _prefix(b"r", self._partition, table)
        keys: list[Any] = [prefix + key.encode() for key, _ in rows]
        with _save_errors():
            saved: Any = self._db.get(keys)
        added = 0
        for (key, new), row_key, old in zip(rows, keys, saved, strict=True):
            if new == old:
                continue
            if old is not None:
                added -= row_hash(table, key, old)
            if new is None:
                self._batch.delete(row_key)
            else:
                added += row_hash(table, key, new)
                self._batch.put(row_key, new)
        return added

    def add(self, table: str, keys: Sequence[str], rows: Sequence[bytes]) -> int:
        prefix, put = _prefix(b"r", self._partition, table), self._batch.put
        for key, row in zip(keys, rows, strict=True):
            put(prefix + key.encode(), row)
        return sum(row_hashes(table, keys, rows))

    def add_ids(self, bucket: int, chunk: bytes) -> None:
        self._ids.append((bucket, chunk))

    def forget_ids(self, bucket: int) -> None:
        prefix = _prefix(b"l", self._partition)
        self._batch.delete_range(prefix + _CHUNK.pack(bucket, 0), prefix + _CHUNK.pack(bucket + 1, 0))

    def commit(self, head: SavedHead) -> None:
        for bucket, chunk in self._ids:
            self._batch.put(_prefix(b"l", self._partition) + _CHUNK.pack(bucket, head.position), chunk)
        self._batch.put(_HEADS_PREFIX + str(self._partition).encode(), msgspec.msgpack.encode(head))
        self._commit(self._batch, self._partition, head)


def _prefix(kind: bytes, partition: Partition, table: str = "") -> bytes:
    """The prefix of keys; names of topics and tables contain no NUL, so no prefix is a prefix of another one."""
    inside = table.encode() + b"\x00" if table else b""
    return kind + b"\x00" + str(partition).encode() + b"\x00" + inside


def _after(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix. The prefix ends with NUL."""
    return prefix[:-1] + b"\x01"


@contextmanager
def _save_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the binding raises nothing more specific
        raise SaveFailed(f"saved state: {error}") from error


def _options() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_memtable_prefix_bloom_ratio(0.05)
    options.set_memtable_whole_key_filtering(True)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_max_open_files(_OPEN_FILES_MAX)
    return options
