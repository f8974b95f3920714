"""A disk in memory that survives crashes: a replica's saved state up to the last commit, and older copies of it.

Every committed head is passed to `on_commit`, so that a checker can compare the replica's digest at a position with its
own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import msgspec

from eventstore.folding.hashes import row_hash
from eventstore.log import Partition
from eventstore.state_store.store import EncodedRow, SaveBatch, SavedHead, SaveFailed

OnCommit = Callable[[Partition, SavedHead], None]


class Saved:
    """One partition on disk, as bytes. Tests may damage it."""

    def __init__(self) -> None:
        self.head = b""
        self.rows: dict[str, dict[str, bytes]] = {}
        self.ids: dict[int, list[bytes]] = {}


class Disk:
    """The saved state of one machine, and how often a save fails."""

    def __init__(self) -> None:
        self.partitions: dict[Partition, Saved] = {}
        self.failures = 0.0
        self.failed = 0

    def copy(self) -> dict[Partition, Saved]:
        """The current content of the disk."""
        return deepcopy(self.partitions)


class DiskStore:
    """A Store on a disk for one life of a process: after `cut`, no call changes the disk."""

    def __init__(
        self, disk: Disk | None = None, rng: random.Random | None = None, on_commit: OnCommit = lambda *_: None
    ) -> None:
        self.disk = disk or Disk()
        self._rng = rng or random.Random(0)
        self._on_commit = on_commit
        self._is_cut = False

    def cut(self) -> None:
        """Mark the process as dead."""
        self._is_cut = True

    def head(self, partition: Partition) -> SavedHead | None:
        head = self._of(partition).head
        return msgspec.msgpack.decode(head, type=SavedHead) if head else None

    def rows(self, partition: Partition, table: str) -> Iterator[tuple[str, bytes]]:
        return iter(sorted(self._of(partition).rows.get(table, {}).items()))

    def ids(self, partition: Partition) -> Iterator[tuple[int, bytes]]:
        saved = self._of(partition).ids
        return ((bucket, chunk) for bucket in sorted(saved) for chunk in saved[bucket])

    def batch(self, partition: Partition) -> SaveBatch:
        return _Batch(self, partition, self._of(partition))

    def forget(self, partition: Partition) -> None:
        self.check_writable()
        self.disk.partitions.pop(partition, None)

    def flush(self) -> None:
        """Nothing to write."""

    async def checkpoint(self) -> None:
        """Nothing to copy: the simulation copies the whole disk."""

    def close(self) -> None:
        """Nothing to release."""

    def check_writable(self) -> None:
        """Raise SaveFailed if the disk currently refuses writes."""
        if self._is_cut:
            raise SaveFailed("saved state: the process is dead")
        if self.disk.failures and self._rng.random() < self.disk.failures:
            self.disk.failed += 1
            raise SaveFailed("saved state: no space left on device")

    def committed(self, partition: Partition, head: SavedHead) -> None:
        self._on_commit(partition, head)

    def _of(self, partition: Partition) -> Saved:
        return self.disk.partitions.setdefault(partition, Saved())


class _Batch:
    def __init__(self, store: DiskStore, partition: Partition, saved: Saved) -> None:
        self._store = store
        self._partition = partition
        self._saved = saved
        self._rows: list[tuple[str, str, bytes | None]] = []
        self._ids: list[tuple[int, bytes]] = []
        self._forgotten: list[int] = []

    def replace(self, table: str, rows: Sequence[EncodedRow]) -> int:
        before = self._saved.rows.get(table, {})
        added = 0
        for key, new in rows:
            old = before.get(key)
            added += (0 if new is None else row_hash(table, key, new)) - (
                0 if old is None else row_hash(table, key, old)
            )
            self._rows.append((table, key, new))
        return added

    def add(self, table: str, keys: Sequence[str], rows: Sequence[bytes]) -> int:
        assert self._saved.rows.get(table, {}).keys().isdisjoint(keys), "what is new was saved before"
        return self.replace(table, list(zip(keys, rows, strict=True)))

    def add_ids(self, bucket: int, chunk: bytes) -> None:
        self._ids.append((bucket, chunk))

    def forget_ids(self, bucket: int) -> None:
        self._forgotten.append(bucket)

    def commit(self, head: SavedHead) -> None:
        self._store.check_writable()
        saved = self._saved
        for table, key, row in self._rows:
            rows = saved.rows.setdefault(table, {})
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        for bucket in self._forgotten:
            saved.ids.pop(bucket, None)
        for bucket, chunk in self._ids:
            saved.ids.setdefault(bucket, []).append(chunk)
        saved.head = msgspec.msgpack.encode(head)
        self._store.committed(self._partition, head)
