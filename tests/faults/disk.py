"""A small disk of a process's own: a file system in memory that can be filled to its last byte, and emptied again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tests.faults.network_lab import run

SIZE_MB = 256
_BLOCK = 65_536


class Disk:
    """A folder with an end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._ballast = folder / "ballast"

    @staticmethod
    async def mounted(folder: Path) -> Disk:
        """A new disk, mounted there for as long as this process lives."""
        disk = Disk(folder)
        await run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder))
        return disk

    def fill(self) -> None:
        """Take every block that is free."""
        with self._ballast.open("ab", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(bytes(_BLOCK))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        """Give them back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize
