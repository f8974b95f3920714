"""The rshim of a DPU as files: `misc` has its settings and the log of its boot, `boot` takes a boot stream.

    UP_TIME         4172(s)
    ---------------------------------------
                 Log Messages
    ---------------------------------------
    INFO[BL2]: start
    INFO[MISC]: Installing OS image

To open `boot` resets the DPU, which then boots from what is written. The log begins anew with each reset. All functions
block; callers run them on a thread, with a time limit.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

LOG_BYTES_MAX = 65_536
_UP_TIME = re.compile(r"UP_TIME\s+(\d{1,12})", re.MULTILINE)
_SHOWS_LOG = re.compile(r"^DISPLAY_LEVEL\s+2\b", re.MULTILINE)
_LINE = re.compile(r"\s*((?:INFO|WARN|ERR|ASSERT)\[[^\]]{1,20}\]:.*)")
_START = re.compile(r"\[BL2\]: start\b")
_INSTALLS = re.compile(r"\[MISC\]:.*(?:[Ii]nstall|Rebooting)")
_ENDED = re.compile(r"\[MISC\]:.*(?:[Ii]nstallation finished|Rebooting\.\.\.)")
"""The last lines of NVIDIA's installers, which run the hooks of the configuration before them."""
_READY = re.compile(r"\[MISC\]:.*DPU is ready")
_FAULT = re.compile(r"(?:ERR|ASSERT)\[|\[MISC\]:.*[Ii]nstallation failed")
_PRINTABLE_MAX = 200


class Misc(NamedTuple):
    """What `misc` shows: seconds since the last reset, -1 if it does not say, and the log of the present boot."""

    up_s: int
    lines: tuple[str, ...]

    @property
    def installs(self) -> bool:
        """Whether this boot is that of an installer: only such a one writes these lines."""
        return any(_INSTALLS.search(line) for line in self.lines)

    @property
    def has_ended(self) -> bool:
        """Whether the installer of this boot has done everything."""
        return any(_ENDED.search(line) for line in self.lines)

    @property
    def is_ready(self) -> bool:
        """Whether the operating system runs."""
        return any(_READY.search(line) for line in self.lines)

    @property
    def fault(self) -> str:
        """The first line about a fault; empty if there is none."""
        return next((line for line in self.lines if _FAULT.search(line)), "")


def parsed(text: str) -> Misc:
    """The content of `misc`. Lines before the last start of the boot loader are of an earlier boot."""
    up = _UP_TIME.search(text)
    lines = [found[1].strip()[:_PRINTABLE_MAX] for line in text.splitlines() if (found := _LINE.fullmatch(line))]
    starts = [number for number, line in enumerate(lines) if _START.search(line)]
    return Misc(int(up[1]) if up else -1, tuple(lines[starts[-1] if starts else 0 :]))


def read_misc(folder: Path) -> Misc:
    """The settings and the log of a rshim, which shows the log on demand only. Raises OSError."""
    text = _read(folder)
    if _SHOWS_LOG.search(text) is None:
        write_misc(folder, "DISPLAY_LEVEL 2")
        text = _read(folder)
    return parsed(text)


def write_misc(folder: Path, setting: str) -> None:
    """Change a setting, such as SW_RESET 1. The files are devices: none is made here. Raises OSError."""
    handle = os.open(folder / "misc", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{setting}\n".encode())
    finally:
        os.close(handle)


def _read(folder: Path) -> str:
    handle = os.open(folder / "misc", os.O_RDONLY)
    try:
        return os.read(handle, LOG_BYTES_MAX).decode(errors="replace")
    finally:
        os.close(handle)


def open_boot(folder: Path) -> int:
    """Begin a boot stream, which resets the DPU. Raises OSError."""
    return os.open(folder / "boot", os.O_WRONLY)


def write_all(handle: int, data: bytes) -> None:
    """Write the next bytes of a boot stream. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
