"""A file that outlives its process: replaced atomically (temporary file, sync, rename, sync of the folder), and checked
by a hash when it is read."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

HASH_BYTES = 16


class HashMismatch(ValueError):
    """The file is torn, or was written by something else."""


def check_writable(path: Path) -> None:
    """Raise OSError if the folder of a file is not writable."""
    probe = path.with_suffix(f"{path.suffix}.probe")  # another agent of this DPU may be writing the file beside it
    probe.touch()
    probe.unlink(missing_ok=True)


def load_bytes(path: Path) -> bytes:
    """The content of a file. Raises OSError, HashMismatch."""
    data = path.read_bytes()
    if _hash(data[HASH_BYTES:]) != data[:HASH_BYTES]:
        raise HashMismatch(f"{path} does not match its hash")
    return data[HASH_BYTES:]


def save_bytes(path: Path, data: bytes) -> None:
    """Replace a file. Raises OSError."""
    beside = _beside(path)
    with beside.open("wb") as file:
        file.write(_hash(data))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _beside(path: Path) -> Path:
    return path.with_suffix(f"{path.suffix}.new")


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=HASH_BYTES).digest()
