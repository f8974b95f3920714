"""Deliveries to devices that download nothing themselves: the file of an image, and the configuration."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from pathlib import Path
from typing import NamedTuple

from drivers.backends.bmc import Unreachable
from drivers.images.images import Images, ReadyFile
from drivers.images.offload import Offload

BLOCK_BYTES = 1 << 20
SUFFIX = ".cfg"
"""The end of the names of configurations, by which DMS tells them from images."""
_DIGITS = 12


class Firmware(NamedTuple):
    """A package of firmware for a BMC, with the URL where the BMC finds it, and its content for one that fetches
    nothing. `versions` are those of its components."""

    name: str
    url: str
    versions: Set[str]
    size: int
    chunks: Callable[[], AsyncIterator[bytes]]


class Delivery(NamedTuple):
    """An image by the name of its file, and the configuration that belongs to it by its own name."""

    name: str
    size: int
    chunks: Callable[[], AsyncIterator[bytes]]
    configuration: Callable[[], Awaitable[tuple[str, bytes]]]


def file_chunks(images: Images, offload: Offload, path: Path, file: ReadyFile) -> Callable[[], AsyncIterator[bytes]]:
    """The content of a file of the image store, block by block."""

    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, file.kept.size, BLOCK_BYTES):
            count = min(BLOCK_BYTES, file.kept.size - begin)
            block = await offload(lambda begin=begin, count=count: _read(path, begin, count))  # type: ignore[misc]
            if len(block) != count:
                images.lost_content(file.kept.sha256)
                raise Unreachable(f"image: {file.name} cannot be read from the image store; it is downloaded again")
            yield block

    return chunks


def configuration_file(dpu: str, content: bytes) -> str:
    """The name of a configuration on a device. Another content has another name: a device that has a file of a name
    takes no second one."""
    return f"{dpu}-{hashlib.sha256(content).hexdigest()[:_DIGITS]}{SUFFIX}"


def _read(path: Path, offset: int, count: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as stream:
            stream.seek(offset)
            return stream.read(count)
    except OSError:
        return b""
