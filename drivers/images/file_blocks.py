"""Reads of a file by an event loop. Blocks in the page cache are read at once, and only others on a thread.

Many DPUs fetch the same image at the same time, so that nearly all reads are of the page cache. To hand each of them to
a thread would take more processor time than the read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from drivers.images.offload import Offload

ReadBlock: TypeAlias = Callable[[int, int], Awaitable[bytes | bytearray]]
"""Up to so many bytes from an offset; none at the end of the file, and none if it cannot be read."""

_NOWAIT = getattr(os, "RWF_NOWAIT", None)


@asynccontextmanager
async def opened(path: Path, offload: Offload) -> AsyncIterator[ReadBlock]:
    """A file to read from. One that cannot be opened has no bytes."""
    files: list[int] = []  # also has the file of a caller that was cancelled while it was opened

    async def read(offset: int, count: int) -> bytes | bytearray:
        if not files:
            return b""
        return _cached(files[0], offset, count) or await offload(lambda: _read(files[0], offset, count))

    try:
        await offload(lambda: _open(path, files))
        yield read
    finally:
        for each in files:
            os.close(each)


def _open(path: Path, files: list[int]) -> None:
    with suppress(OSError):
        files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _cached(file: int, offset: int, count: int) -> bytearray:
    """The bytes from an offset that the page cache has, without a wait for the disk; maybe none. File systems without
    such reads have none."""
    if _NOWAIT is None:
        return bytearray()
    found = bytearray(count)
    try:
        size = os.preadv(file, [found], offset, _NOWAIT)
    except OSError:
        return bytearray()
    del found[size:]
    return found


def _read(file: int, offset: int, count: int) -> bytes:
    try:
        return os.pread(file, count, offset)
    except OSError:
        return b""
