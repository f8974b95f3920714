"""Free disk space. After a failed write, RocksDB is reopened only if the disk has space for the bytes that reopening
may write."""

from __future__ import annotations

import os
from pathlib import Path

_REOPEN_SPARE_BYTES = 4 << 20


def reserve_for_reopening(folder: Path) -> None:
    """Raise OSError unless the disk has space for the bytes that reopening this database may write: as many as its
    write-ahead log has, and a margin."""
    wal_bytes = sum(file.stat().st_size for file in folder.glob("*.log"))
    path = folder / "probe"
    with path.open("wb") as probe:
        try:
            os.posix_fallocate(probe.fileno(), 0, wal_bytes + _REOPEN_SPARE_BYTES)
        finally:
            path.unlink()
