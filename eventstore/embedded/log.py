"""The embedded log: RocksDB in a directory that one process owns.

Appends are committed in groups. Appends that were queued during the sync of one batch form the next batch, with one
write and one sync, so 200 callers share one sync. The sync runs in a thread of its own: a disk that takes seconds
delays appends only.

After a failed write RocksDB refuses all further writes. Whether RocksDB recovers by itself depends on the file that
could not grow: it recovers from a full disk, but never from a quota or an I/O error. This log therefore stops writing
to that database handle. The handle serves reads until the disk has space for the bytes that reopening may write. Then
the directory is reopened, and the records on the disk are the log. Until then every append has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rocksdict import AccessType

from eventstore.deadlines import Deadlines
from eventstore.disk_space import reserve_for_reopening
from eventstore.embedded.reader import RocksReader
from eventstore.embedded.rocks import Bounds, LogRow, Rocks, RocksError, check_header, open_rocks
from eventstore.embedded.secondary import SecondaryLog
from eventstore.errors import AppendUnknown, FatalError, LogMismatch, LogUnavailable, PlaneError
from eventstore.linger import Linger
from eventstore.log import (
    DEFAULT_PARTITION_COUNT,
    Headers,
    Partition,
    size_of,
)
from eventstore.topics import TopicTable

logger = logging.getLogger(__name__)

_BATCH_RECORDS = 500
_BATCH_BYTES = 512 << 10
_QUEUED_BYTES = 32 << 20
_QUEUED_RECORD_BYTES = 256
"""Bytes that each queued record adds to the queue size on top of its content, so that _QUEUED_BYTES also bounds the
number of records.
"""
_CHECK_S = 1.0
_STEP_BACK_MS = 60_000
"""If the clock steps back by at most this, append times stay the same until the clock has caught up. A larger step back
means that the clock was wrong before, and append times follow the step. Otherwise the fold would refuse every command
as too late until the clock had caught up (`ledger.LATE_MS`). Append times of Kafka's brokers follow a step of any size;
folds accept both.
"""
_EXPIRE_CHECKS = 600
_LAST_SYNC_S = 3.0
"""Maximum wait for the last sync on close. It is shorter than the time that a process gets to shut down, so that the
process can still report a hung disk.
"""


class _Pending(NamedTuple):
    partition: Partition
    key: bytes
    value: bytes
    synced: asyncio.Future[None]
    headers: Headers

    @property
    def cost(self) -> int:
        return len(self.key) + len(self.value) + size_of(self.headers) + _QUEUED_RECORD_BYTES


class EmbeddedLog(RocksReader):
    """An EventLog over a directory. `batches` and `failed_batches` count commits since the start; `queued_bytes` wait
    for the next commit.
    """

    def __init__(
        self, topics: TopicTable, path: Path, rocks: Rocks, partition_count: int, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(topics, path, rocks, partition_count)
        self._now_ms = now_ms
        self._queue: deque[_Pending] = deque()
        self._lingers = {spec.name: Linger() for spec in topics if spec.callers != "none"}
        self._queued_with_caller = dict.fromkeys(self._lingers, 0)
        self._deadlines = Deadlines()
        self.queued_bytes = 0
        self._work = asyncio.Event()
        self._queue_space = asyncio.Event()
        self._queue_space.set()
        self._write_error = ""
        self._writing = asyncio.Lock()
        self._sync_thread = ThreadPoolExecutor(1, "sync")
        self._syncing: asyncio.Future[None] | None = None
        self.batches = 0
        self.failed_batches = 0
        self._tasks = [asyncio.create_task(self._guard(work)) for work in (self._commit_forever, self._maintain)]

    @classmethod
    @asynccontextmanager
    async def open(
        cls, topics: TopicTable, path: Path, *, partition_count: int | None = None, now_ms: Callable[[], int]
    ) -> AsyncIterator[EmbeddedLog]:
        """Open the log in this directory as its owner; a missing directory is created. FatalError if another process
        owns it.

        A new log gets `partition_count` partitions, or the default count. An existing log must have this count; without
        a count it keeps its own.
        """
        rocks = open_rocks(path, AccessType.read_write())
        try:
            header = rocks.header()
            if header is None:
                count = partition_count or DEFAULT_PARTITION_COUNT
                rocks.write_header(count)
            else:
                count = check_header(path, header, partition_count)
            log = cls(topics, path, rocks, count, now_ms)
        except RocksError as error:
            rocks.close()
            raise FatalError(f"log directory {path} cannot be read: {error}") from error
        except BaseException:
            rocks.close()
            raise
        try:
            yield log
        finally:
            await log.close()

    @staticmethod
    def secondary(topics: TopicTable, path: Path) -> AbstractAsyncContextManager[SecondaryLog]:
        """Read the log in this directory beside its owner. The owner may be another process; a log without an owner can
        be read too.
        """
        return SecondaryLog.open(topics, path)

    def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> asyncio.Future[None]:
        """See EventLog.append. Returns a plain future: a task for each append would cost more than the rest of the
        append.
        """
        try:
            self.topics.check_append(partition, key, value, self._partition_count, headers)
            self._raise_if_ended()
            self._raise_if_failing()
            if timeout_s <= 0:
                raise _not_synced(partition, timeout_s)
        except PlaneError as error:
            return _failed(error)
        if not self._queue_space.is_set():
            return asyncio.ensure_future(self._append_when_space(partition, key, value, timeout_s, headers))
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deadlines.put(synced, timeout_s, partial(_not_synced, partition, timeout_s))
        self._enqueue(_Pending(partition, key, value, synced, headers))
        return synced

    async def _append_when_space(
        self, partition: Partition, key: bytes, value: bytes, timeout_s: float, headers: Headers
    ) -> None:
        until_s = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(until_s):
                while not self._queue_space.is_set():
                    await self._queue_space.wait()
        except TimeoutError:
            raise _not_synced(partition, timeout_s) from None
        left_s = until_s - asyncio.get_running_loop().time()
        await self.append(partition, key, value, timeout_s=left_s, headers=headers)

    async def close(self) -> None:
        self._end(LogUnavailable(f"log directory {self._path} is closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        rocks, self._rocks = self._rocks, None
        if self._syncing is not None:
            await asyncio.wait((self._syncing,), timeout=_LAST_SYNC_S)
            if not self._syncing.done():
                self._sync_thread.shutdown(wait=False)
                logger.error("log directory %s not closed: the disk did not sync in %.0f s", self._path, _LAST_SYNC_S)
                return
        self._sync_thread.shutdown()
        if rocks is not None:
            try:
                rocks.close()
            except RocksError as error:
                logger.warning(
                    "log directory %s closed with an error, acknowledged records are safe: %s", self._path, error
                )

    def expire(self, partition: Partition, position: int) -> None:
        """Drop the records before `position`, except the last one: it determines the next offset.

        The next sync makes this durable; after a crash the records expire again.
        """
        bounds = self._bounds[partition]
        begin = min(position, bounds.end - 1)
        if begin > bounds.begin and self._rocks is not None:
            self._rocks.delete_before(partition, begin)
            self._bounds[partition] = bounds._replace(begin=begin)

    # -- commits

    def _enqueue(self, pending: _Pending) -> None:
        self._queue.append(pending)
        self.queued_bytes += pending.cost
        self._work.set()
        topic = pending.partition.topic
        if topic in self._lingers:
            self._queued_with_caller[topic] += 1
            self._lingers[topic].join(self._queued_with_caller[topic], is_full=self._is_batch_full())
        if self.queued_bytes >= _QUEUED_BYTES:
            self._queue_space.clear()

    async def _commit_forever(self) -> None:
        while True:
            await self._work.wait()
            for topic, linger in self._lingers.items():
                if waiting := self._queued_with_caller[topic]:
                    await linger.wait(waiting, is_full=self._is_batch_full())
            batch = self._take()
            try:
                if batch:
                    await self._commit(batch)
            except BaseException:
                self._answer(batch, AppendUnknown(f"log directory {self._path} was closed during a write"))
                raise
            written = Counter(pending.partition.topic for pending in batch)
            for topic, linger in self._lingers.items():
                if written[topic]:
                    under_way = written[topic] + self._queued_with_caller[topic]
                    linger.observe(under_way, asyncio.get_running_loop().time())
            # The callers whose append just ended run before the next batch is taken, and append to it.
            await asyncio.sleep(0)

    def _is_batch_full(self) -> bool:
        return self.queued_bytes >= _BATCH_BYTES or len(self._queue) >= _BATCH_RECORDS

    def _take(self) -> list[_Pending]:
        batch: list[_Pending] = []
        size = 0
        while self._queue and len(batch) < _BATCH_RECORDS and size < _BATCH_BYTES:
            pending = self._queue.popleft()
            if pending.partition.topic in self._lingers:
                self._queued_with_caller[pending.partition.topic] -= 1
            self.queued_bytes -= pending.cost
            if pending.synced.done():
                self._deadlines.drop(pending.synced)
            else:
                batch.append(pending)
                size += pending.cost
        if not self._queue:
            self._work.clear()
        if self.queued_bytes < _QUEUED_BYTES:
            self._queue_space.set()
        return batch

    async def _commit(self, batch: Sequence[_Pending]) -> None:
        try:
            self._check_directory()
            async with self._writing:
                self._raise_if_ended()
                self._raise_if_failing()
                assert self._rocks is not None
                rows, ends = self._rows_of(batch)
                self._rocks.write(rows)
                self._syncing = asyncio.get_running_loop().run_in_executor(self._sync_thread, self._rocks.sync)
                await asyncio.shield(self._syncing)
        except PlaneError as error:
            self._answer(batch, error)
        except RocksError as error:
            self._stop_writing(str(error))
            self._answer(batch, AppendUnknown(self._write_error))
        else:
            for partition, end in ends.items():
                self._bounds[partition] = end._replace(begin=self._bounds[partition].begin)
            self.batches += 1
            self._answer(batch, None)
            self._announce()

    def _rows_of(self, batch: Sequence[_Pending]) -> tuple[list[LogRow], dict[Partition, Bounds]]:
        """The rows to write for these appends, and the bounds that their partitions have after the write."""
        now_ms = self._now_ms()
        bounds: dict[Partition, Bounds] = {}
        rows: list[LogRow] = []
        for partition, key, value, _, headers in batch:
            begin, offset, last_ms = bounds.get(partition) or self._bounds[partition]
            append_ms = max(last_ms, now_ms) if last_ms - now_ms <= _STEP_BACK_MS else now_ms
            rows.append(LogRow(partition, offset, append_ms, key, value, headers))
            bounds[partition] = Bounds(begin, offset + 1, append_ms)
        return rows, bounds

    def _answer(self, batch: Sequence[_Pending], error: PlaneError | None) -> None:
        for pending in batch:
            self._deadlines.drop(pending.synced)
            if pending.synced.done():
                continue
            if error is None:
                pending.synced.set_result(None)
            else:
                pending.synced.set_exception(type(error)(str(error)))

    def _end(self, reason: PlaneError) -> None:
        super()._end(reason)
        unknown = reason if isinstance(reason, LogMismatch) else AppendUnknown(str(reason))
        self._answer(self._queue, unknown)
        self._queue.clear()
        self._queued_with_caller = dict.fromkeys(self._lingers, 0)
        self.queued_bytes = 0
        self._queue_space.set()

    # -- failures and periodic checks

    def _raise_if_failing(self) -> None:
        if self._write_error:
            raise AppendUnknown(self._write_error)

    def _stop_writing(self, error: str) -> None:
        self.failed_batches += 1
        self._write_error = f"log directory {self._path} accepts no writes: {error}"
        logger.error("log directory %s accepts no writes: %s", self._path, error)

    async def _maintain(self) -> None:
        checks = 0
        while True:
            await asyncio.sleep(_CHECK_S)
            with suppress(LogUnavailable):  # the disk cannot be checked now
                self._check_directory()
            self._raise_if_ended()
            checks += 1
            if self._write_error:
                async with self._writing:
                    self._try_to_reopen()
            elif checks % _EXPIRE_CHECKS == 0:
                self._expire_old()

    def _try_to_reopen(self) -> None:
        try:
            reserve_for_reopening(self._path)
            rocks, self._rocks = self._rocks, None
            if rocks is not None:
                with suppress(RocksError):  # close repeats the failure that caused it
                    rocks.close()
            self._rocks = Rocks(self._path, AccessType.read_write())
            self._take_over_bounds(self._rocks.all_bounds(self.topics.all_partitions(self._partition_count)))
        except (OSError, RocksError) as error:
            logger.debug("log directory %s still accepts no writes: %s", self._path, error)
            return
        self._write_error = ""
        logger.warning("log directory %s accepted writes again", self._path)
        self._announce()

    def _expire_old(self) -> None:
        for partition, bounds in self._bounds.items():
            kept_ms = self.topics[partition.topic].retention_ms
            if kept_ms is None or bounds.end == bounds.begin:
                continue
            try:
                self.expire(partition, self._first_at(partition, bounds.last_ms - kept_ms))
            except LogUnavailable as error:
                logger.warning("expired records not deleted yet: %s", error)
                return
            except RocksError as error:
                self._stop_writing(str(error))
                return

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task of this log. Its failure ends the log with an error for every caller, so no caller hangs."""
        try:
            await work()
        except PlaneError as error:
            self._end(error)
        except Exception as error:
            self._end(FatalError(f"log directory {self._path}: {type(error).__name__}: {error}"))
            logger.exception("log in directory %s stopped by an unhandled exception", self._path)


def _failed(error: PlaneError) -> asyncio.Future[None]:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    return failed


def _not_synced(partition: Partition, timeout_s: float) -> AppendUnknown:
    return AppendUnknown(f"append to {partition}: not synced within {timeout_s} s")
