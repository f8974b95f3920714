"""A small disk for one process: a file system in memory, which a test can fill and free again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tests.faults.network_lab import run

SIZE_MB = 256
_BLOCK = 65_536


class Disk:
    """A folder of limited size."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._ballast = folder / "ballast"

    @staticmethod
    async def mounted(folder: Path) -> Disk:
        """A new disk, mounted at this path for the life of this process."""
        disk = Disk(folder)
        await run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder))
        return disk

    def fill(self) -> None:
        """Allocate every free block."""
        with self._ballast.open("ab", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(bytes(_BLOCK))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        """Free the blocks that `fill` allocated."""
        self._ballast.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        stat = os.statvfs(self.folder)
        return stat.f_bavail * stat.f_frsize
