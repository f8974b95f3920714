"""Files that are there whole or not at all: written beside their place, synced, and then put there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventstore.errors import PermanentError


@contextmanager
def whole_file(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """A path to write to; what is written there takes the place of `path` when the context ends well.

    Raises PermanentError, also for what is there and no file: root would put one in the place of a device.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.exists() and not path.is_file():
            raise PermanentError(f"{path}: must be a file, or not be there; what is there is none, and stays")
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    except OSError as error:
        raise PermanentError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except TimeoutError:  # of a log that does not answer, and no disk's
        raise
    except OSError as error:
        raise PermanentError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in this folder survive a crash from here on."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
