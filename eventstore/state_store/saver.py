"""Saves and loads a folded partition, in slices that yield the event loop.

Rows are encoded and compared with the saved rows, a few hundred at a time; only the final write is atomic. The saver
yields the loop when the time budget is spent, and not after every slice. Most partitions have only a few changed rows
per table, and in a busy process a yield takes longer than saving such a slice. Nothing is folded during a save, so
every yield delays the fold. A save that fails or is cancelled leaves every row marked as changed, for the next save.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from struct import Struct
from typing import Any, TypeAlias

import msgspec

from eventstore.backoff import backoff_ceiling
from eventstore.errors import LogMismatch
from eventstore.folding.hashes import MODULUS, row_hash
from eventstore.folding.ledger import LedgerEntry, is_chunk
from eventstore.folding.partition import FoldedPartition
from eventstore.folding.state_table import StateTable
from eventstore.log import Partition
from eventstore.replica_limits import ReplicaLimits
from eventstore.state_store.store import (
    SaveBatch,
    SavedHead,
    SaveFailed,
    StateDamaged,
    StateReader,
    StateStore,
    digest_bytes,
)

YieldLoop: TypeAlias = Callable[[int], Awaitable[None]]
"""Yields the event loop if a yield is due, given the number of rows saved since the last call."""

_SLICE_ROWS = 200
"""Maximum number of rows per step: about 1 ms of encoding, lookups and hashing."""

_LOAD_ROWS = 2_000

_RETRY_MAX_S = 30.0
"""Maximum time between attempts after repeated failures: each attempt encodes all changed rows again, and nothing is
folded during these seconds."""

_LIST = Struct(">BI")
_LIST_OF = 0xDD
"""The first byte of a msgpack array; the item count follows in four bytes."""

_ROWS = msgspec.msgpack.Encoder(order="deterministic")
_IDS = msgspec.msgpack.Decoder(list[tuple[str, LedgerEntry]])

logger = logging.getLogger(__name__)


async def _yield_loop(rows: int) -> None:
    await asyncio.sleep(0)


class Saver:
    """Saves the partitions of one replica at intervals. A store that fails delays saves and stops nothing else.

    `failures` counts failed saves; `saved_s` is the time at which all partitions were last saved without a failure.

    The saved state of `stale` partitions is unusable, and is dropped before their next save.
    """

    def __init__(self, store: StateStore, limits: ReplicaLimits, now_s: float, stale: Iterable[Partition] = ()) -> None:
        self.failures = 0
        self.saved_s = now_s
        self.next_s = now_s + limits.save_every_s
        self._checkpoint_s = now_s + limits.checkpoint_s
        self._checkpoint_records = 0
        self._is_flushed = False
        self._failing = False
        self._failed_rounds = 0
        self._stale = set(stale)
        self._store = store
        self._limits = limits

    async def save_all(
        self, partitions: Collection[FoldedPartition], now_s: float, yield_loop: YieldLoop = _yield_loop
    ) -> None:
        """Save every partition that was folded further since its last save, up to the first failure.

        Nothing is folded during an attempt, and while the store fails, each attempt has more changed rows to encode. So
        attempts become rarer with each failure, and begin with the partition that has the fewest changed rows.
        """
        self.next_s = now_s + self._limits.save_every_s
        further = [folded for folded in partitions if not folded.is_saved()]
        if self._failing:
            further.sort(key=FoldedPartition.changed_rows)
        for folded in further:
            if not await self._save(folded, yield_loop):
                self._failed_rounds += 1
                self.next_s = now_s + backoff_ceiling(self._failed_rounds, self._limits.save_every_s, _RETRY_MAX_S)
                return
        self._failed_rounds = 0
        self.saved_s = now_s
        await self._checkpoint(sum(folded.saved_position for folded in partitions), now_s)

    async def save_early(self, folded: FoldedPartition, is_behind: bool, yield_loop: YieldLoop) -> None:
        """Save a partition early if many of its rows have changed, and the store accepts writes."""
        enough = self._limits.save_rows_behind if is_behind else self._limits.save_rows
        if not self._failing and folded.changed_rows() >= enough:
            await self._save(folded, yield_loop)

    async def _checkpoint(self, records: int, now_s: float) -> None:
        """Make a checkpoint if it is due. The first call that finds it due only starts a flush of the store, which
        takes a while; the next call makes the checkpoint."""
        if not self._checkpoint_records:
            self._checkpoint_records = records + self._limits.checkpoint_records
        if now_s < self._checkpoint_s and records < self._checkpoint_records:
            return
        with self._failures():
            if not self._is_flushed:
                self._is_flushed = True
                self._store.flush()
                return
            self._is_flushed = False
            self._checkpoint_s = now_s + self._limits.checkpoint_s
            self._checkpoint_records = records + self._limits.checkpoint_records
            await self._store.checkpoint()

    async def _save(self, folded: FoldedPartition, yield_loop: YieldLoop) -> bool:
        """Save a partition. False if this failed."""
        failures = self.failures
        if not folded.halted:
            with self._failures():
                if folded.partition in self._stale:
                    self._store.forget(folded.partition)
                    self._stale.discard(folded.partition)
                await save(folded, self._store, yield_loop)
        return self.failures == failures

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except SaveFailed as error:
            self.failures += 1
            if not self._failing:
                logger.error("state save failed, changed rows stay in memory: %s", error)
            self._failing = True
        else:
            if self._failing:
                logger.info("state save succeeded again")
            self._failing = False


async def save(folded: FoldedPartition, store: StateStore, yield_loop: YieldLoop = _yield_loop) -> None:
    """Make everything up to the folded position durable. Nothing may be folded meanwhile. Raises SaveFailed."""
    batch = store.batch(folded.partition)
    drained = [(table, table.drain()) for table in folded.tables]
    try:
        digest = folded.digest
        for table, changes in drained:
            for keys in _slices(changes.fresh):
                digest += batch.add(table.name, keys, list(map(_ROWS.encode, table.get_many(keys))))
                await yield_loop(len(keys))
            for keys in _slices(changes.changed):
                digest += batch.replace(table.name, list(zip(keys, map(_encoded, table.get_many(keys)), strict=True)))
                await yield_loop(len(keys))
        await _add_ids(folded, batch, yield_loop)
        digest %= MODULUS
        head = head_of(folded, digest)
        batch.commit(head)
    except BaseException:
        for table, changes in drained:
            table.touch([*changes.fresh, *changes.changed])
        raise
    folded.ledger.mark_saved()
    folded.digest = digest
    folded.saved_position = head.position


def head_of(folded: FoldedPartition, digest: int) -> SavedHead:
    """The saved metadata of a partition: everything but its rows and ids."""
    last_offset, last = folded.last()
    return SavedHead(
        log_id=folded.log_id,
        position=folded.position,
        time_ms=folded.time_ms,
        version=folded.version,
        digest=digest_bytes(digest),
        running=folded.running,
        first=folded.first,
        last_offset=last_offset,
        last=last,
        quarantined=folded.quarantined,
        ranges=folded.ledger.ranges,
    )


async def load_partition(folded: FoldedPartition, saved: StateReader) -> FoldedPartition | None:
    """Fill an empty partition from its saved state; None if there is no usable one.

    Saved state that is damaged, or of an unsupported fold version, is ignored with a log line. The caller then folds
    the partition from its start and replaces the saved state. Raises LogMismatch for the saved state of another log.
    """
    try:
        head = saved.head(folded.partition)
        if head is None:
            return None
        if head.log_id != folded.log_id:
            raise LogMismatch(f"saved state: it belongs to log {head.log_id!r}, and this log is {folded.log_id!r}")
        if head.version not in folded.versions:
            logger.error(
                "saved state ignored: written by unsupported fold version %d",
                head.version,
                extra={"partition": folded.partition},
            )
            return None
        folded.begin(head.version)
        digest = sum([await _load_rows(folded, saved, table) for table in folded.state.tables])
        ids = ((n, chunk if is_chunk(n) else _IDS.decode(chunk)) for n, chunk in saved.ids(folded.partition))
        folded.ledger.load(head.ranges, ids)
        if digest_bytes(digest) == head.digest:
            _take_over(folded, head)
            return folded
        reason = "its rows do not match their digest"
    except (StateDamaged, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # two are not DecodeErrors
        reason = str(error)
    logger.error(
        "saved state discarded, partition folded from its start",
        extra={"partition": folded.partition, "reason": reason},
    )
    return None


async def _load_rows(folded: FoldedPartition, saved: StateReader, table: StateTable[Any]) -> int:
    decode = msgspec.msgpack.Decoder(table.row_type).decode
    rows = saved.rows(folded.partition, table.name)
    digest = 0
    while part := list(islice(rows, _LOAD_ROWS)):
        digest += sum(row_hash(table.name, key, row) for key, row in part)
        table.load((key, decode(row)) for key, row in part)
        await asyncio.sleep(0)
    return digest


def _take_over(folded: FoldedPartition, head: SavedHead) -> None:
    folded.position = folded.saved_position = head.position
    folded.time_ms = head.time_ms
    folded.digest = int.from_bytes(head.digest, "big")
    folded.running = head.running
    folded.first = head.first
    folded.restore_last(head.last_offset, head.last)
    folded.quarantined = head.quarantined
    folded.state.rederive()


def _slices(keys: list[str]) -> Iterator[list[str]]:
    return (keys[start : start + _SLICE_ROWS] for start in range(0, len(keys), _SLICE_ROWS))


def _encoded(row: Any) -> bytes | None:
    return None if row is None else _ROWS.encode(row)


async def _add_ids(folded: FoldedPartition, batch: SaveBatch, yield_loop: YieldLoop) -> None:
    """Add one chunk for each bucket; a load reads the chunk as a list. The ids are encoded in slices: encoding all ids
    of a minute at once would block the event loop.
    """
    entries, unsaved = folded.ledger.entries, folded.ledger.unsaved()
    for bucket in sorted(unsaved.forgotten):
        batch.forget_ids(bucket)
    for bucket, ids in unsaved.added.items():
        chunk = [_LIST.pack(_LIST_OF, len(ids))]
        for some in _slices(ids):
            chunk += [_ROWS.encode((command_id, entries[command_id])) for command_id in some]
            await yield_loop(len(some))
        batch.add_ids(bucket, b"".join(chunk))
    for number, chunk_of_used in unsaved.chunks.items():
        batch.add_ids(number, chunk_of_used)
