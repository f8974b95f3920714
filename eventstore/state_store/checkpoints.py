"""Retention of checkpoints: saved states of the past, so that one is near every point in the past.

A checkpoint is a set of hard links, which cost nothing until the store replaces the files. Checkpoints are made at
even distances and thinned out with age: the number of records from a checkpoint to a point in the past is bounded by a
share of the records from that point to now. A bounded number of checkpoints thus covers a log of any length: a query
as of an hour ago folds minutes of log, one as of a year ago folds weeks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_NEWEST_KEPT = 2


class StateCheckpoint(NamedTuple):
    """A checkpoint of the state store: the time of its latest record, and the number of records folded into it."""

    time_ms: int
    records: int
    path: Path


class CheckpointRetention(NamedTuple):
    """How many checkpoints are kept, and how much disk they may take beyond the store itself."""

    states: int = 24
    bytes_max: int = 4 << 30


def checkpoint_name(time_ms: int, records: int) -> str:
    """The name of a checkpoint's folder; names sort by age."""
    return f"{time_ms:015d}-{records:015d}"


def checkpoints_in(folder: Path) -> list[StateCheckpoint]:
    """The checkpoints in a folder, oldest first."""
    return [] if not folder.exists() else sorted(filter(None, map(_checkpoint_at, folder.iterdir())))


def _checkpoint_at(path: Path) -> StateCheckpoint | None:
    time_ms, _, records = path.name.partition("-")
    return StateCheckpoint(int(time_ms), int(records), path) if time_ms.isdigit() and records.isdigit() else None


def most_redundant(records: Sequence[int]) -> int:
    """The index of the checkpoint to drop. `records` has the number of folded records of each checkpoint, oldest first.

    The loss of this checkpoint leaves the smallest gap relative to its age. The first checkpoint stays, because without
    it early queries start at the beginning of the log. The newest ones stay too, unless there are no others.
    """
    inner = range(1, len(records) - _NEWEST_KEPT)
    now = records[-1]
    return min(inner, key=lambda i: (records[i + 1] - records[i - 1]) / (now - records[i - 1] or 1), default=0)


async def prune(folder: Path, current: Path, retention: CheckpointRetention) -> None:
    """Drop checkpoints until the limits are met. Raises OSError."""
    for _ in _pruning(folder, current, retention):
        await asyncio.sleep(0)


def _pruning(folder: Path, current: Path, retention: CheckpointRetention) -> Iterator[None]:
    """Deletes file by file, so that other disk accesses are not blocked for long."""
    for path in folder.glob("*.tmp"):
        yield from _removing(path)
    states = checkpoints_in(folder)
    while len(states) > retention.states or (len(states) > 1 and unshared_bytes(states, current) > retention.bytes_max):
        dropped = states.pop(most_redundant([state.records for state in states]))
        yield from _removing(dropped.path.rename(dropped.path.with_suffix(".tmp")))


def _removing(folder: Path) -> Iterator[None]:
    for file in list(folder.iterdir()):
        file.unlink()
        yield
    folder.rmdir()


def unshared_bytes(states: Sequence[StateCheckpoint], current: Path) -> int:
    """Disk space of these checkpoints that the store does not share."""
    shared = {stat.st_ino for stat in _files(current)}
    own = {stat.st_ino: stat.st_size for state in states for stat in _files(state.path)}
    return sum(size for inode, size in own.items() if inode not in shared)


def _files(folder: Path) -> Iterator[os.stat_result]:
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # RocksDB deletes files that it has replaced
            yield entry.stat()
