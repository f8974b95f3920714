"""The rshim of a DPU as files: `misc` has its settings and the log of its boot, `boot` takes a boot stream.

    UP_TIME         4172(s)
    ---------------------------------------
                 Log Messages
    ---------------------------------------
    INFO[BL2]: start
    INFO[MISC]: Installing OS image

To open `boot` resets the DPU, which then boots from what is written. The log begins anew with each reset. All functions
block; callers run them on a thread, with a time limit.

The log is a buffer of 127 words of 8 bytes in the card. A line takes a word and those of its text; the one that does
not fit is cut, and later ones are dropped silently (`rsh_log_store` of the kernel's mlxbf-bootctl). The boot of a
BlueField-3 takes some 85 words, and an installer with hooks does not fit into the rest. A read leaves the log as it is,
unless the setting CLEAR_ON_READ is 1 (`rshim_log_show` of rshim-user-space). It is 1 for one read only, when much of
the buffer is full: every read of `misc` clears the log then, also that which finds the device of a card.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LOG_BYTES_MAX = 65_536
CLEAR_WORDS = 80
"""Words from which the log is cleared. The rest takes the lines of some seconds. The boot takes so many, and an
installer usually fewer: its lines stay, and show another program that the DPU is being installed."""
FULL_WORDS = 120
"""Words from which a line may have been lost: a count by the text may be a few below that of the device."""
KEEPS, CLEARS = "CLEAR_ON_READ 0", "CLEAR_ON_READ 1"
_UP_TIME = re.compile(r"UP_TIME\s+(\d{1,12})", re.MULTILINE)
_SHOWS_LOG = re.compile(r"^DISPLAY_LEVEL\s+2\b", re.MULTILINE)
_LINE = re.compile(r"\s*((?:INFO|WARN|ERR|ASSERT)\[[^\]]{1,20}\]:(.*))")
_START = re.compile(r"\[BL2\]: start\b")
_INSTALLS = re.compile(r"\[MISC\]:.*(?:[Ii]nstall|Rebooting)")
_ENDED = re.compile(r"\[MISC\]:.*(?:[Ii]nstallation finished|Rebooting\.\.\.)")
"""The last lines of NVIDIA's installers, which run the hooks of the configuration before them."""
_READY = re.compile(r"\[MISC\]:.*DPU is ready")
_FAULT = re.compile(r"(?:ERR|ASSERT)\[|\[MISC\]:.*[Ii]nstallation failed")
_PRINTABLE_MAX = 200


class Misc(NamedTuple):
    """The content of `misc`: seconds since the last reset, -1 if unknown, and the log of the present boot."""

    up_s: int
    lines: tuple[str, ...]
    words: int = 0
    """How much of the buffer the log takes, as far as its text tells."""

    @property
    def begins(self) -> bool:
        """Whether the log has the begin of the boot."""
        return bool(self.lines) and _START.search(self.lines[0]) is not None

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
    found = [line for each in text.splitlines() if (line := _LINE.fullmatch(each))]
    lines = [line[1].strip()[:_PRINTABLE_MAX] for line in found]
    starts = [number for number, line in enumerate(lines) if _START.search(line)]
    words = sum(1 + -(-len(line[2].strip().encode()) // 8) for line in found)
    return Misc(int(up[1]) if up else -1, tuple(lines[starts[-1] if starts else 0 :]), words)


class ResetDetector:
    """Detects the boot after a reset: a rshim may show the boot from before it for a moment. `before` is the content of
    `misc` from before the reset; None if there was none to wait for."""

    def __init__(self, before: Misc | None) -> None:
        self._before = before

    def is_after(self, misc: Misc) -> bool:
        """Whether this content is from after the reset. All later content is, too."""
        before = self._before
        if before is not None and (misc.lines != before.lines or misc.up_s < before.up_s):
            self._before = None
        return self._before is None


class FollowedLog:
    """The log of the present boot, with the lines that were cleared from the device."""

    def __init__(self) -> None:
        self._cleared: tuple[str, ...] = ()
        self._up_s = -1

    def shown(self, misc: Misc) -> Misc:
        """The log of the boot that the device shows."""
        if misc.begins or misc.up_s < self._up_s:
            self._cleared = ()
        self._up_s = misc.up_s
        return misc._replace(lines=(*self._cleared, *misc.lines))

    def clear(self, misc: Misc) -> Misc:
        """Keep what the device showed when it was cleared. Returns the log of the boot until then."""
        found = self.shown(misc)
        self._cleared = found.lines
        return found


def read_misc(folder: Path) -> Misc:
    """The settings and the log of a rshim, which shows the log on demand only. Raises OSError."""
    text = _read(folder)
    if _SHOWS_LOG.search(text) is None:
        write_misc(folder, "DISPLAY_LEVEL 2")
        text = _read(folder)
    return parsed(text)


def clear_log(folder: Path) -> Misc | None:
    """The settings and the log of a rshim, which then begins anew; None if its driver cannot clear it. Raises OSError.

    A process that is killed here may leave the setting; the next one restores it by `keep_log`.
    """
    try:
        write_misc(folder, CLEARS)
    except OSError:
        return None
    try:
        return read_misc(folder)
    finally:
        keep_log(folder)


def keep_log(folder: Path) -> None:
    """Let reads leave the log as it is. A driver without the setting never clears it."""
    with suppress(OSError):
        write_misc(folder, KEEPS)


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
