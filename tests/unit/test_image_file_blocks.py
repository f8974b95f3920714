"""Reads of the files of images: of the page cache at once, and of the rest on a thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from drivers.images.file_blocks import opened
from drivers.images.offload import in_place
from tests.support.image_server import content_of
from tests.support.requirements import missing_requirement

_Result = TypeVar("_Result")


async def whole(path: Path, block: int) -> bytes:
    """A file, read in blocks."""
    found = bytearray()
    async with opened(path, in_place) as read:
        while data := await read(len(found), block):
            assert len(data) <= block
            found += data
    return bytes(found)


@pytest.mark.parametrize("block", [1_000, 65_536, 1 << 20])
async def test_a_file_is_read_in_blocks(tmp_path: Path, block: int) -> None:
    (tmp_path / "image").write_bytes(content_of(300_001))
    assert await whole(tmp_path / "image", block) == content_of(300_001)


async def test_a_file_whose_file_system_has_no_reads_without_waits_is_read_too() -> None:
    assert await whole(Path("/proc/cpuinfo"), 1_000)


async def test_what_the_page_cache_has_is_read_without_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(content_of(100_000))
    used: list[object] = []

    async def counted(work: Callable[[], _Result]) -> _Result:
        used.append(work)
        return work()

    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except (AttributeError, OSError):
            missing_requirement("a file system with reads that do not wait")
    async with opened(path, counted) as read:
        assert await read(0, 1_000) + await read(1_000, 1_000) == content_of(100_000)[:2_000]
    assert len(used) == 1, "only to open it"


async def test_a_missing_file_and_a_folder_have_no_bytes(tmp_path: Path) -> None:
    assert await whole(tmp_path / "missing", 1_000) == b""
    assert await whole(tmp_path, 1_000) == b""


async def test_a_file_that_was_truncated_ends(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(content_of(100_000))
    async with opened(path, in_place) as read:
        assert await read(0, 1_000) == content_of(100_000)[:1_000]
        os.truncate(path, 1_000)
        assert await read(1_000, 1_000) == b""


async def test_a_file_is_closed_also_after_a_cancellation_while_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"content")
    has_opened = asyncio.Event()

    async def slow(work: Callable[[], _Result]) -> _Result:
        found = work()
        has_opened.set()
        await asyncio.get_running_loop().create_future()
        return found

    def offload(work: Callable[[], _Result]) -> Awaitable[_Result]:
        return slow(work)

    async def read() -> None:
        async with opened(tmp_path / "image", offload):
            pytest.fail("the file is not open yet")

    reading = asyncio.create_task(read())
    await has_opened.wait()
    assert open_paths(tmp_path)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert not open_paths(tmp_path)


def open_paths(folder: Path) -> list[Path]:
    """The files in a folder that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the list itself
            found.append(each.readlink())
    return [path for path in found if path.is_relative_to(folder)]
