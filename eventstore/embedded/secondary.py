"""Reads an embedded log beside its owner, in another process: for verification, replays and event exports.

This is a RocksDB secondary: it reads the owner's files without a lock, costs the owner nothing, and also reads a log
without an owner. It polls for new records at an interval. A catch-up can fail when the owner deletes a file that it
has just replaced, so only consecutive failures end the log.

A catch-up reads the flushed files first and the write-ahead log last. If the owner flushes between these two reads, the
catch-up misses the flushed records but sees later ones. The next catch-up closes this gap. So the reader catches up,
notes the end of the log, and catches up again. It then has every record up to the noted end.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rocksdict import AccessType

from eventstore.embedded.reader import RocksReader
from eventstore.embedded.rocks import ALL_FILES, Bounds, Rocks, RocksError, check_header, open_rocks
from eventstore.errors import AppendRefused, FatalError, LogMismatch, LogUnavailable
from eventstore.log import Headers, Partition
from eventstore.topics import TopicTable

logger = logging.getLogger(__name__)

_CATCH_UP_S = 0.1
_FAILURES_MAX = 50


class SecondaryLog(RocksReader):
    """An EventLog that refuses appends, some tenths of a second behind its owner.

    It may return records that the owner has written but not acknowledged yet.
    """

    def __init__(self, topics: TopicTable, path: Path, rocks: Rocks, partition_count: int) -> None:
        super().__init__(topics, path, rocks, partition_count)
        with self._reading():
            self._take_over_bounds(self._without_holes(rocks, self._bounds))
        self._task = asyncio.create_task(self._catch_up_forever())

    @classmethod
    @asynccontextmanager
    async def open(cls, topics: TopicTable, path: Path) -> AsyncIterator[SecondaryLog]:
        """Read the log in this directory. FatalError if there is none; LogUnavailable if it cannot be followed."""
        if not (path / "CURRENT").exists():
            raise FatalError(f"log directory {path} holds no log: no CURRENT file")
        with tempfile.TemporaryDirectory(prefix="dpuplane-log-") as scratch:
            rocks = open_rocks(path, AccessType.secondary(scratch), ALL_FILES)
            try:
                header = rocks.header()
                if header is None:
                    raise FatalError(f"log directory {path} holds no log yet: its process has not finished creating it")
                check_header(path, header, None)
                log = cls(topics, path, rocks, header.partition_count)
            except RocksError as error:
                rocks.close()
                raise LogUnavailable(f"log directory {path} cannot be read: {error}") from error
            except BaseException:
                rocks.close()
                raise
            try:
                yield log
            finally:
                await log.close()

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        raise AppendRefused(f"log directory {self._path} is open read-only: only its owning process may append")

    async def close(self) -> None:
        self._end(LogUnavailable(f"log directory {self._path} is closed"))
        rocks, self._rocks = self._rocks, None
        if rocks is not None:
            rocks.close()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _catch_up_forever(self) -> None:
        failures = 0
        while self._ended is None:
            await asyncio.sleep(_CATCH_UP_S)
            try:
                self._check_directory()
                self._catch_up()
                failures = 0
            except LogMismatch as error:
                self._end(error)
            except (RocksError, LogUnavailable) as error:
                failures += 1
                logger.debug("log directory %s: catch-up failed: %s", self._path, error)
                if failures == _FAILURES_MAX:
                    self._end(
                        LogUnavailable(f"log directory {self._path} cannot be read along with its owner: {error}")
                    )

    def _catch_up(self) -> None:
        if self._rocks is not None and self._rocks.catch_up():
            seen = self._rocks.all_bounds(self.topics.all_partitions(self._partition_count))
            self._take_over_bounds(self._without_holes(self._rocks, seen))
            self._announce()

    def _without_holes(self, rocks: Rocks, seen: Mapping[Partition, Bounds]) -> dict[Partition, Bounds]:
        """Catch up again, so that every record below the ends in `seen` can be read. Returns these ends, with the new
        begins."""
        rocks.catch_up()
        begins = rocks.all_bounds(self.topics.all_partitions(self._partition_count))
        return {partition: found._replace(begin=begins[partition].begin) for partition, found in seen.items()}
