"""The port of the state store: the saved state of each partition, so that a restart folds one second of log.

A save is one atomic write per partition: the changed rows, the ids, and a head with the position that they reflect.
With separate writes, half of all killed processes left a state that did not match its position. The digest of a
partition is the sum of its rows' hashes: it does not depend on the order of saves, so replicas can compare it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from eventstore.errors import PermanentError, TransientError
from eventstore.folding.hashes import MODULUS, row_hash, row_hashes
from eventstore.folding.used_ids import IdRange
from eventstore.log import Partition

EncodedRow = tuple[str, bytes | None]
"""A row by its key; None for a removed row."""


class SaveFailed(TransientError):
    """The store could not write. The saved state is unchanged; the fold continues, and the save is retried."""


class StateDamaged(PermanentError):
    """A part of the saved state cannot be read. It is derived from the log, so it is folded again."""


class SavedHead(msgspec.Struct, frozen=True):
    """The metadata of a saved partition: everything but its rows and ids. Digests are 16 bytes; `digest` is the digest
    of the rows.
    """

    log_id: str
    position: int
    time_ms: int
    version: int
    digest: bytes
    running: bytes
    first: bytes
    last_offset: int
    last: bytes
    quarantined: int
    ranges: tuple[IdRange, ...]


class SaveBatch(Protocol):
    """The changes of one partition. They take effect together at `commit`."""

    def replace(self, table: str, rows: Sequence[EncodedRow]) -> int:
        """Put or remove rows. Returns the amount to add to the digest (before it is reduced modulo 2^128)."""
        ...

    def add(self, table: str, keys: Sequence[str], rows: Sequence[bytes]) -> int:
        """Put rows under keys that have no saved row. Returns the amount to add to the digest."""
        ...

    def add_ids(self, bucket: int, chunk: bytes) -> None:
        """Add command ids to a bucket of the ledger."""
        ...

    def forget_ids(self, bucket: int) -> None:
        """Remove a bucket of the ledger."""
        ...

    def commit(self, head: SavedHead) -> None:
        """Write all changes atomically. Raises SaveFailed."""
        ...


class StateReader(Protocol):
    """Reads saved partitions. Iterators must be run to their ends."""

    def head(self, partition: Partition) -> SavedHead | None:
        """The last committed head, or None."""
        ...

    def rows(self, partition: Partition, table: str) -> Iterator[tuple[str, bytes]]:
        """The saved rows of a table, by key."""
        ...

    def ids(self, partition: Partition) -> Iterator[tuple[int, bytes]]:
        """The saved ids by bucket, in the order in which they were added."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class StateStore(StateReader, Protocol):
    """The store in which one replica saves its partitions."""

    def batch(self, partition: Partition) -> SaveBatch:
        """Begin a save. Only one save may be open at a time."""
        ...

    def forget(self, partition: Partition) -> None:
        """Drop the saved state of a partition. Raises SaveFailed."""
        ...

    def flush(self) -> None:
        """Start writing the saved state to files, so that a checkpoint moments later need not wait for it."""
        ...

    async def checkpoint(self) -> None:
        """Make a checkpoint of the saved state, for queries of the past. Raises SaveFailed."""
        ...


class DigestStore:
    """A store of digests only: for replicas without a disk, and for replays."""

    def __init__(self) -> None:
        self._hashes: dict[Partition, dict[str, dict[str, int]]] = {}

    def head(self, partition: Partition) -> SavedHead | None:
        return None

    def rows(self, partition: Partition, table: str) -> Iterator[tuple[str, bytes]]:
        return iter(())

    def ids(self, partition: Partition) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def batch(self, partition: Partition) -> SaveBatch:
        return _DigestBatch(self._hashes.setdefault(partition, {}))

    def forget(self, partition: Partition) -> None:
        self._hashes.pop(partition, None)

    def flush(self) -> None:
        """Nothing to write."""

    async def checkpoint(self) -> None:
        """A DigestStore makes no checkpoints."""

    def close(self) -> None:
        """Nothing to release."""


class _DigestBatch:
    """The hashes of a partition's rows, by table and key, and the changes of this batch."""

    def __init__(self, hashes: dict[str, dict[str, int]]) -> None:
        self._hashes = hashes
        self._put: dict[str, dict[str, int]] = {}
        self._gone: list[tuple[str, str]] = []

    def replace(self, table: str, rows: Sequence[EncodedRow]) -> int:
        known, put = self._hashes.get(table, {}), self._put.setdefault(table, {})
        added = 0
        for key, row in rows:
            added -= known.get(key, 0)
            if row is None:
                self._gone.append((table, key))
            else:
                put[key] = row_hash(table, key, row)
                added += put[key]
        return added

    def add(self, table: str, keys: Sequence[str], rows: Sequence[bytes]) -> int:
        hashes = list(row_hashes(table, keys, rows))
        self._put.setdefault(table, {}).update(zip(keys, hashes, strict=True))
        return sum(hashes)

    def add_ids(self, bucket: int, chunk: bytes) -> None:
        """Ids are not part of the digest."""

    def forget_ids(self, bucket: int) -> None:
        """Ids are not part of the digest."""

    def commit(self, head: SavedHead) -> None:
        for table, rows in self._put.items():
            self._hashes.setdefault(table, {}).update(rows)
        for table, key in self._gone:
            self._hashes[table].pop(key, None)


def digest_bytes(digest: int) -> bytes:
    """A digest as it is saved and shown."""
    return (digest % MODULUS).to_bytes(16, "big")
