"""Writes files atomically: to a temporary file beside the target, which is synced and then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventstore.errors import PermanentError


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """A temporary path to write to. It replaces `path` when the context ends without an error.

    Raises PermanentError if the file cannot be written, or if `path` exists and is not a regular file: root would
    replace a device.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.exists() and not path.is_file():
            raise PermanentError(f"{path}: must be a regular file or absent; the existing entry is not overwritten")
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    except OSError as error:
        raise PermanentError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except TimeoutError:  # a log did not respond in time; no disk raises this
        raise
    except OSError as error:
        raise PermanentError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a crash."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
