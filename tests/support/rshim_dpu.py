"""A DPU behind a rshim in a folder: a FIFO that takes boot streams, and a `misc` file with the log of its boot.

The driver of a real rshim is a character device. Here a thread plays it: it replaces `misc` whenever the log changes,
and finds a setting that was written to its end. To open the FIFO resets the DPU, as with the driver.

The log has 127 words: a line that does not fit is cut, and those after it are lost. A file does not tell who reads it:
CLEAR_ON_READ clears what was shown when it was switched on, once it is switched off.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from drivers.images.bfb import MAGIC, BadImage, BfbReader

FLASH_S, BOOT_S = 0.1, 0.05
_POLL_S = 0.005
_SHOWN_MAX = 16
WORDS_MAX = 127
_INSTALLS, _FINISHED = "INFO[MISC]: Installing OS image", "INFO[MISC]: Installation finished"
_BOOTED = ("INFO[BL2]: start", "INFO[MISC]: Linux up", "INFO[MISC]: DPU is ready")


class _Shown(NamedTuple):
    """A file that shows the log: its handle, the number of the boot, and how many lines the log of that boot had got by
    then, those included that had been cleared."""

    handle: int
    boot: int
    lines: int


class RshimDpu:
    """One DPU. `planned` are the ends of its next installations, fail or lie; without one, they succeed.

    `installs` counts complete streams, `restarts` resets by SW_RESET, and `cut` streams that ended early. `image` is
    the stream that it runs.
    """

    def __init__(self, folder: Path, slot: str = "0000:03:00") -> None:
        self.folder = folder
        self.planned: list[str] = []
        self.installs = self.restarts = self.cut = 0
        self.image = b""
        self.rounds = 0
        """Grows whenever all that was written before has been taken."""
        self.takes_max = -1
        """The number of bytes after which the device refuses more, until `accepts` is set."""
        self.accepts = threading.Event()
        self.holds = threading.Event()
        """While it is cleared, an installation does not proceed."""
        self.holds.set()
        self.proceeds: Callable[[str], bool] = lambda event: True
        """Whether the next event of an installation may come: a follower must have seen what the log has."""
        self.boot_lines: Sequence[str] = ("INFO[BL2]: start", "INFO[BL2]: boot mode (rshim)")
        """What the boot of an installer writes to the log."""
        self.installer_lines: Sequence[str] = ()
        """What an installer writes before its last line."""
        self.room_s = 0.0
        """How long an installer waits with its next line while that does not fit into the log."""
        self.clears = 0
        """Counts how often the log was cleared."""
        self.clears_on_read: _Shown | None = None
        """What was shown when CLEAR_ON_READ was switched on; None while it is off."""
        self._slot = slot
        self._text = ""
        self._shown: deque[_Shown] = deque()
        self._taken: dict[int, int] = {}
        """How much of each file that was shown has been taken, by its handle."""
        self._boots = 0
        self._lock = threading.Lock()
        self._reset_s = time.monotonic() - 5_000.0
        self._lines: list[str] = [*_BOOTED]
        self._cleared = 0
        """The number of lines of this boot that were cleared."""
        self._installs = False
        """Whether the installer of an image has begun in this boot."""
        self._loses_power = threading.Event()
        self._ends = threading.Event()
        self._due: list[tuple[float, str]] = []
        self._next = b""
        folder.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / "boot")
        self._show()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[RshimDpu]:
        self._thread.start()
        while not self.rounds:  # it has its file open, whatever becomes of the folder
            time.sleep(_POLL_S)
        try:
            yield self
        finally:
            self._ends.set()
            self._thread.join(60)
            assert not self._thread.is_alive()
            for shown in self._shown:
                os.close(shown.handle)

    def age(self, span_s: float) -> None:
        """Let it have run for a time."""
        self._reset_s -= span_s
        self._show()

    def _run(self) -> None:
        handle = os.open(self.folder / "boot", os.O_RDONLY | os.O_NONBLOCK)
        try:
            shown_s = 0.0
            while not self._ends.is_set():
                self.rounds += 1
                self._take_settings()
                self._proceed()
                ready, _, _ = select.select([handle], [], [], _POLL_S)
                if ready and (first := _first(handle)):
                    handle = self._receive(handle, first)
                elif ready:
                    time.sleep(_POLL_S)  # no writer
                if time.monotonic() - shown_s > 0.2:
                    shown_s = time.monotonic()
                    self._show()
        finally:
            os.close(handle)

    def _receive(self, handle: int, data: bytes) -> int:
        """Take a boot stream to its end. Returns the handle for the next one."""
        self._reset(*self.boot_lines)
        content = bytearray()
        while data and not self._ends.is_set():
            content += data
            if 0 <= self.takes_max < len(content):
                self.takes_max = -1
                self.accepts.clear()
                os.close(handle)  # the writer gets EPIPE
                self.cut += 1
                while not self.accepts.wait(_POLL_S) and not self._ends.is_set():
                    pass
                return os.open(self.folder / "boot", os.O_RDONLY | os.O_NONBLOCK)
            data = _next(handle, self._ends)
        complete = _last_stream(bytes(content))
        if complete is None:
            self.cut += 1
        else:
            self.installs += 1
            self._install(complete)
        return handle

    def _install(self, content: bytes) -> None:
        how = self.planned.pop(0) if self.planned else ""
        now_s = time.monotonic()
        if how == "lie":
            self._due = [(now_s + BOOT_S, "boot")]
            return
        self._log(_INSTALLS)
        self._show()
        if how == "fail":
            self._due = [(now_s + FLASH_S, "fault")]
            return
        self._next = content
        ends_s = now_s + FLASH_S
        self._due = [*((ends_s, line) for line in self.installer_lines), (ends_s, "flashed"), (ends_s + BOOT_S, "boot")]

    def lose_power(self) -> None:
        """Boot what is on its disk, whatever it did."""
        self._loses_power.set()

    def _may_proceed(self, event: str) -> bool:
        return self.holds.is_set() and (not self._installs or self.proceeds(event))

    def _proceed(self) -> None:
        if self._loses_power.is_set():
            self._reset(*_BOOTED)
            self._loses_power.clear()
        while self._due and self._due[0][0] <= time.monotonic() and self._may_proceed(self._due[0][1]):
            due_s, event = self._due[0]
            line = {"fault": "ERR[MISC]: Failed to write the eMMC", "flashed": _FINISHED, "boot": ""}.get(event, event)
            if not self._has_room(line) and time.monotonic() < due_s + self.room_s:
                return
            del self._due[0]
            self._log(line)
            if event == "flashed":
                self.image = self._next
            elif event == "boot":
                self._reset(*_BOOTED)
            self._show()

    def _take_settings(self) -> None:
        """Find settings in the files that were shown last: a writer may have opened one before it was replaced."""
        for shown in list(self._shown):
            added = os.pread(shown.handle, 65_536, self._taken[shown.handle])
            for setting in added.splitlines(keepends=True):
                self._taken[shown.handle] += len(setting)
                self._take_setting(setting.decode().strip(), shown)

    def _take_setting(self, setting: str, shown: _Shown) -> None:
        match setting:
            case "SW_RESET 1":
                self.restarts += 1
                self._reset("INFO[BL2]: start")
                self._due = [(time.monotonic() + BOOT_S, "boot")]
            case "CLEAR_ON_READ 1":
                self.clears_on_read = shown
            case "CLEAR_ON_READ 0":
                before, self.clears_on_read = self.clears_on_read, None
                if before is not None and before.boot == self._boots:
                    self._clear(before.lines - self._cleared)

    def _clear(self, count: int) -> None:
        """Forget the first lines. There are none if the file that was read showed what has been cleared since."""
        if count > 0:
            self.clears += 1
            self._cleared += count
            del self._lines[:count]
            self._show()

    def _reset(self, *lines: str) -> None:
        self._reset_s = time.monotonic()
        self._due = []
        self._boots += 1
        self._installs = False
        self._lines, self._cleared = [], 0
        for line in lines:
            self._log(line)
        self._show()

    def _log(self, line: str) -> None:
        """Write a line to the log, as `rsh_log_store` of the kernel's driver: what does not fit is lost."""
        self._installs = self._installs or line == _INSTALLS
        level, _, text = line.partition(": ")
        words = min(-(-len(text) // 8), WORDS_MAX - self._words() - 1)
        if words > 0:
            self._lines.append(f"{level}: {text[: words * 8]}")

    def _has_room(self, line: str) -> bool:
        return not line or self._words() + _words(line) <= WORDS_MAX

    def _words(self) -> int:
        return sum(_words(line) for line in self._lines)

    def _show(self) -> None:
        up_s = int(time.monotonic() - self._reset_s)
        head = (
            "DISPLAY_LEVEL   2 (0:basic, 1:advanced, 2:log)\nBOOT_MODE       1 (0:rshim, 1:emmc)\n"
            f"SW_RESET        0 (1: reset)\nDEV_NAME        pcie-{self._slot}.2\nUP_TIME         {up_s}(s)\n"
        )
        bar = "---------------------------------------\n"
        text = f"{head}{bar}             Log Messages\n{bar}" + "".join(f" {line}\n" for line in self._lines)
        with self._lock:
            if text == self._text or not self.folder.exists():
                return
            self._text = text
            partial = self.folder / ".misc"
            partial.write_text(text)
            shown = _Shown(os.open(partial, os.O_RDONLY), self._boots, self._cleared + len(self._lines))
            self._shown.append(shown)
            self._taken[shown.handle] = len(text.encode())
            partial.replace(self.folder / "misc")
            if len(self._shown) > _SHOWN_MAX:
                os.close(self._shown.popleft().handle)


def _words(line: str) -> int:
    """The words of a line in the log: a header, and its text."""
    return 1 + -(-len(line.partition(": ")[2]) // 8)


def _last_stream(content: bytes) -> bytes | None:
    """The complete boot stream in what arrived. A FIFO does not show where a killed writer was followed by another."""
    magic, begin = MAGIC.to_bytes(4, "little"), content.find(MAGIC.to_bytes(4, "little"))
    while begin >= 0:
        reader = BfbReader()
        try:
            reader.feed(content[begin:])
            reader.finish()
        except BadImage:
            begin = content.find(magic, begin + 1)
        else:
            return content[begin:]
    return None


def _first(handle: int) -> bytes:
    """The begin of a stream; empty if there is no writer, or one that came after the pipe was found without any."""
    try:
        return os.read(handle, 65_536)
    except BlockingIOError:
        return b""


def _next(handle: int, ends: threading.Event) -> bytes:
    """The next bytes of a stream; empty at its end."""
    while not ends.is_set():
        ready, _, _ = select.select([handle], [], [], 0.5)
        if ready:
            try:
                return os.read(handle, 65_536)
            except BlockingIOError:
                continue
    return b""
