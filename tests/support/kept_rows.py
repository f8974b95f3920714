"""An in-memory store of one partition that returns the saved rows: for restarts, and for damage to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from eventstore.folding.hashes import row_hash
from eventstore.log import Partition
from eventstore.state_store.store import EncodedRow, SaveBatch, SavedHead


class KeptRows:
    """The Store protocol. Tests may damage its public fields."""

    def __init__(self) -> None:
        self.saved_head = b""
        self.kept: dict[tuple[str, str], bytes] = {}
        self.chunks: list[tuple[int, bytes]] = []

    def head(self, partition: Partition) -> SavedHead | None:
        return msgspec.msgpack.decode(self.saved_head, type=SavedHead) if self.saved_head else None

    def rows(self, partition: Partition, table: str) -> Iterator[tuple[str, bytes]]:
        return ((key, row) for (of, key), row in sorted(self.kept.items()) if of == table)

    def ids(self, partition: Partition) -> Iterator[tuple[int, bytes]]:
        return iter(self.chunks)

    def batch(self, partition: Partition) -> SaveBatch:
        return _Batch(self)

    def forget(self, partition: Partition) -> None:
        self.saved_head, self.kept, self.chunks = b"", {}, []

    def flush(self) -> None:
        """Nothing to write."""

    async def checkpoint(self) -> None:
        """Nothing to checkpoint."""

    def close(self) -> None:
        """Nothing to release."""


class _Batch:
    def __init__(self, store: KeptRows) -> None:
        self._store = store
        self._rows = dict(store.kept)
        self._chunks = list(store.chunks)

    def replace(self, table: str, rows: Sequence[EncodedRow]) -> int:
        added = 0
        for key, row in rows:
            before = self._rows.pop((table, key), None)
            added -= 0 if before is None else row_hash(table, key, before)
            if row is not None:
                self._rows[table, key] = row
                added += row_hash(table, key, row)
        return added

    def add(self, table: str, keys: Sequence[str], rows: Sequence[bytes]) -> int:
        return self.replace(table, list(zip(keys, rows, strict=True)))

    def add_ids(self, bucket: int, chunk: bytes) -> None:
        self._chunks.append((bucket, chunk))

    def forget_ids(self, bucket: int) -> None:
        self._chunks = [(of, chunk) for of, chunk in self._chunks if of != bucket]

    def commit(self, head: SavedHead) -> None:
        self._store.kept, self._store.chunks = self._rows, self._chunks
        self._store.saved_head = msgspec.msgpack.encode(head)
