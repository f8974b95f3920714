"""Installs an image on a DPU, and restarts a DPU, through its rshim.

The plane knows how far a task is by its percentage, which it gives back to an agent that was killed:

    0 -> BEGUN, before the device is touched -> FINAL, before the last block -> WRITTEN -> INSTALLING -> ENDED -> ready

An agent that finds a task at BEGUN writes all of the stream again: it was cut, and the DPU does not boot from it. At
FINAL, the device may have the last block. Then only the log of the rshim tells, in which the installer of the image
writes soon after the whole stream has arrived. The last block is written after the digest of all was compared, so that
a DPU never boots from a wrong image.

A DPU that is ready counts as installed only if an agent has seen the last line of its installer. The old system of a
DPU that was reset before looks the same in the log, and so does a new one without its configuration or firmware. An
agent that was away at that time cannot tell them apart; then the attempt fails, and the next one installs again. That
may be one installation more than needed. But what keeps an agent away is most often its host, whose power is that of
the card, and a DPU with the wrong image would serve unnoticed. The DPU does not serve during either.

The log of a rshim is short, and the last line of an installer may not fit. So the agent clears a log that fills, until
it has seen that line. It does so only once the plane knows WRITTEN: an agent that is restarted then needs nothing that
was cleared. Before that, and with a driver that cannot clear it, the log may be full. If the agent has followed it from
the begin of the boot, the first lines of the installer suffice then, as its last one was never there to be seen. In
that case a DPU that loses its power while it installs is taken as installed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.devices import rshim_of
from deploy.host_agent.image_source import OpenImage, Stream
from deploy.host_agent.rshim import (
    CLEAR_WORDS,
    FULL_WORDS,
    FollowedLog,
    Misc,
    clear_log,
    keep_log,
    open_boot,
    read_misc,
    write_all,
    write_misc,
)
from schemas.api import dpuplane_pb2 as pb

BEGUN, FINAL, WRITTEN, INSTALLING, ENDED = 1, 45, 50, 75, 90
HELD_BYTES = 1 << 20
"""The end of the image, which is written after the digest of all was compared. It is longer than any configuration, so
it has a part of the image itself."""
RESET = "SW_RESET 1"
GRAIN_S = 2
"""The time since a reset is in whole seconds."""
_LAST_RESET = re.compile(r"restarts the DPU; its last reset was at second (-?\d+) of the boot of the host")

_SEEN = {INSTALLING: "the DPU installs the image", ENDED: "waits until the DPU is ready"}

_Result = TypeVar("_Result")


class RshimTiming(NamedTuple):
    """How long a device may take, in seconds."""

    call_s: float = 30.0
    """For one read, and for one write of a block."""
    install_s: float = 2_700.0
    """From the end of the stream until the operating system runs. The step has an hour."""
    settle_s: float = 300.0
    """From the end of the stream until the installer in the image writes to the log."""
    restart_s: float = 900.0
    """From a reset until the operating system runs."""
    gone_s: float = 120.0
    """Longest absence of the rshim: its device vanishes while the card is reset."""
    poll_s: float = 1.0
    """Most of NVIDIA's installers wait 3 s between their last line and the restart, which empties the log. The last
    line of one that does not wait is seen if the DPU takes longer than this to stop."""


_TIMING = RshimTiming()


class Rshim:
    """The rshim of one DPU. Each call raises ActionFailed."""

    def __init__(self, dev: Path, pci_address: str, timing: RshimTiming) -> None:
        self._dev = dev
        self._slot = pci_address.rpartition(".")[0]
        self._timing = timing
        self._seen_s = asyncio.get_running_loop().time()
        self._keeps_log = False
        """Whether the setting of an agent that was killed while it cleared the log is undone."""
        self._late: asyncio.Future[Any] | None = None
        """The work that took longer than its time limit, and may still use a file."""

    async def folder(self) -> Path:
        """Its folder."""
        name = await asyncio.to_thread(rshim_of, self._dev, self._slot)
        if not name:
            raise ActionFailed(f"rshim: the host has no rshim of the DPU at {self._slot}; is its driver running?")
        return self._dev / name

    async def read(self) -> Misc:
        """Its settings and its log."""
        folder = await self.folder()
        if not self._keeps_log:
            await self.timed("keep its log", lambda: keep_log(folder))
            self._keeps_log = True
        return await self.timed("read", lambda: read_misc(folder))

    async def clear_log(self) -> Misc | None:
        """Its settings and its log, which then begins anew; None if it cannot be cleared now."""
        try:
            folder = await self.folder()
            return await self.timed("clear its log", lambda: clear_log(folder))
        except ActionFailed:
            return None  # the next read says whether it is away

    async def read_if_there(self) -> Misc | None:
        """Its settings and its log; None while it is away for a time."""
        try:
            return await self.read()
        except ActionFailed:
            if asyncio.get_running_loop().time() - self._seen_s > self._timing.gone_s:
                raise
            return None

    async def timed(
        self, what: str, work: Callable[[], _Result], *, undo: Callable[[_Result], None] = lambda result: None
    ) -> _Result:
        """Run blocking work on the device within its time limit. A cancelled caller waits for the end of the work, as
        that may use an open file. `undo` gets the result of work that nobody waits for."""

        def undone(ended: asyncio.Future[_Result]) -> None:
            if not ended.cancelled() and ended.exception() is None:
                undo(ended.result())

        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            await asyncio.wait({running}, timeout=self._timing.call_s)
        except asyncio.CancelledError:
            await asyncio.wait({running}, timeout=self._timing.call_s)
            running.add_done_callback(undone)
            raise
        if not running.done():
            running.add_done_callback(undone)
            self._late = running
            raise ActionFailed(f"rshim: the device did not {what} within {self._timing.call_s:g} s")
        try:
            found = running.result()
        except OSError as error:
            raise ActionFailed(f"rshim: the device could not {what}: {error.strerror}") from error
        self._seen_s = asyncio.get_running_loop().time()
        return found

    async def close(self, handle: int) -> None:
        """Close a file as soon as no work uses it: its number may then be that of another file."""
        if self._late is not None and not self._late.done():
            self._late.add_done_callback(lambda ended: os.close(handle))
        else:
            await self.timed("end the boot stream", lambda: os.close(handle))


class _Boots:
    """Tells the boot after a reset from the one before it, which a rshim may still show for a moment."""

    def __init__(self, before: Misc | None) -> None:
        self._before = before

    def is_after(self, misc: Misc) -> bool:
        """Whether this is from after the reset. Once it is, everything later is."""
        before = self._before
        if before is not None and (misc.lines != before.lines or misc.up_s < before.up_s):
            self._before = None
        return self._before is None


class _Reached:
    """How far an installation is, by the log of its DPU. `is_recorded` says whether the plane knows that the image is
    written; `is_followed`, whether this agent has followed the log from the begin."""

    def __init__(self, progress: Progress, percent: int, image: str, *, is_recorded: bool, is_followed: bool) -> None:
        self._progress = progress
        self._percent = percent
        self._image = image
        self._is_recorded = is_recorded
        self._is_followed = is_followed
        self._is_full = self._is_full_told = False

    async def note(self, misc: Misc) -> None:
        """Report what the log says."""
        seen = ENDED if misc.has_ended else INSTALLING if misc.installs else self._percent
        if seen > self._percent:
            self._percent = seen
            self._is_recorded = await self._progress(seen, _SEEN[seen]) or self._is_recorded
        if misc.installs:
            self._is_full = misc.words >= FULL_WORDS

    def may_clear(self, misc: Misc) -> bool:
        """Whether the log must make room for the end of the installer, and no line of it is needed any more.

        A boot that is ready, or after that end, keeps its log: an agent that is restarted must see that it is ready.
        """
        return misc.words >= CLEAR_WORDS and self._is_recorded and self._percent < ENDED and not misc.is_ready

    async def note_full(self) -> None:
        """Report once that the last line of the installer may not fit into the log."""
        if self._is_full and self._percent < ENDED and not self._is_full_told:
            self._is_full_told = True
            await self._progress(self._percent, "the DPU installs the image; the log of its rshim is full")

    def check(self) -> None:
        """Refuse a DPU that is ready without an installation."""
        if self._percent >= ENDED or (self._is_full and self._is_followed):
            return
        if self._percent < INSTALLING and self._is_followed:
            raise ActionFailed(
                f"image: the DPU is ready, but the installer of {self._image} wrote nothing to the log of the rshim; "
                "the DPU did not install it, or the image cannot be installed through a rshim"
            )
        raise ActionFailed(
            f"image: the DPU is ready, but the end of the installer of {self._image} was not seen; it may have been "
            "reset before, and is installed again"
        )


class InstallAction:
    """Installs images. `dev` is the root of the devices of the host."""

    def __init__(
        self, dev: Path, source: OpenImage, timing: RshimTiming = _TIMING, *, held_bytes: int = HELD_BYTES
    ) -> None:
        self._dev = dev
        self._source = source
        self._timing = timing
        self._held_bytes = held_bytes

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        rshim = Rshim(self._dev, task.pci_address, self._timing)
        if task.percent >= WRITTEN or (task.percent >= FINAL and await self._shows_installer(rshim)):
            percent, is_recorded = max(task.percent, WRITTEN), task.percent >= WRITTEN
            reached = _Reached(progress, percent, _image(task), is_recorded=is_recorded, is_followed=False)
            await self._follow(rshim, reached, None)
            return
        before = await rshim.read()
        self._check_idle(before)
        await self._write(task, rshim, progress)
        is_recorded = await progress(WRITTEN, "waits for the installer of the image")
        reached = _Reached(progress, WRITTEN, _image(task), is_recorded=is_recorded, is_followed=True)
        await self._follow(rshim, reached, before)

    async def _shows_installer(self, rshim: Rshim) -> bool:
        """Whether the installer of the image begins in its time."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timing.settle_s
        while loop.time() < ends_s:
            misc = await rshim.read_if_there()
            if misc is not None and misc.installs:
                return True
            await asyncio.sleep(self._timing.poll_s)
        return False

    def _check_idle(self, misc: Misc) -> None:
        """Another program may install an image: a reset would leave the DPU without an operating system."""
        if misc.installs and not misc.fault and 0 <= misc.up_s < self._timing.install_s:
            raise ActionFailed("rshim: another program installs an image on the DPU; wait until it has ended")

    async def _write(self, task: pb.HostTask, rshim: Rshim, progress: Progress) -> None:
        folder = await rshim.folder()
        async with self._source(task.url) as stream:
            await progress(BEGUN, "writes the image", is_required=True)
            handle = await rshim.timed("begin a boot stream", lambda: open_boot(folder), undo=os.close)
            try:
                await self._copy(stream, handle, rshim, progress)
            finally:
                await rshim.close(handle)

    async def _copy(self, stream: Stream, handle: int, rshim: Rshim, progress: Progress) -> None:
        digest, count, told, held = hashlib.sha256(), 0, BEGUN, bytearray()
        async for chunk in stream.chunks:
            digest.update(chunk)
            count += len(chunk)
            held += chunk
            if len(held) >= 2 * self._held_bytes:
                block = bytes(held[: -self._held_bytes])
                del held[: len(block)]
                await rshim.timed("take the image", lambda block=block: write_all(handle, block))  # type: ignore[misc]
            percent = BEGUN + (FINAL - BEGUN - 1) * count // stream.size
            if percent >= told + 10:
                told = percent
                await progress(percent, "writes the image")
        if count != stream.size or digest.digest() != stream.sha256:
            raise ActionFailed(f"image: {count} bytes arrived, which do not have the size and digest that were stated")
        await progress(FINAL, "writes the last block of the image", is_required=True)
        await rshim.timed("take the image", lambda: write_all(handle, bytes(held)))

    async def _follow(self, rshim: Rshim, reached: _Reached, before: Misc | None) -> None:
        """Follow the log to the end. `before` is what the rshim showed before this agent wrote the image; None if an
        earlier agent wrote it."""
        loop, boots, log = asyncio.get_running_loop(), _Boots(before), FollowedLog()
        ends_s = loop.time() + self._timing.install_s
        while loop.time() < ends_s:
            found = await rshim.read_if_there()
            if found is not None and boots.is_after(found):
                misc = log.shown(found)
                if misc.fault:
                    raise ActionFailed(f"rshim: the DPU reports: {misc.fault}")
                await reached.note(misc)
                if misc.is_ready and not misc.installs:
                    reached.check()
                    return
                cleared = await rshim.clear_log() if reached.may_clear(misc) else None
                if cleared is not None:
                    await reached.note(log.clear(cleared))
                else:
                    await reached.note_full()
            await asyncio.sleep(self._timing.poll_s)
        raise ActionFailed(f"rshim: the DPU was not ready {self._timing.install_s:g} s after the image was written")


def _image(task: pb.HostTask) -> str:
    """The name of the image of a task, as its URL has it."""
    return next(iter(parse_qs(urlsplit(task.url).query).get("image", ())), "the image")


class RestartAction:
    """Restarts DPUs, each once for a task: the time of its last reset decides whether it has happened.

    That time is on the clock of the host's boot. An agent that is killed in a reset and starts again in another boot of
    its host resets the DPU again.
    """

    def __init__(self, dev: Path, timing: RshimTiming = _TIMING) -> None:
        self._dev = dev
        self._timing = timing

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        rshim, loop = Rshim(self._dev, task.pci_address, self._timing), asyncio.get_running_loop()
        misc, told = await rshim.read(), _LAST_RESET.fullmatch(task.message)
        reset_s, boots = _reset_s(misc), _Boots(None)
        if told is None or reset_s <= int(told[1]) + GRAIN_S:
            if told is None:
                last = f"its last reset was at second {reset_s} of the boot of the host"
                await progress(BEGUN, f"restarts the DPU; {last}", is_required=True)
            folder, boots = await rshim.folder(), _Boots(misc)
            await rshim.timed("reset", lambda: write_misc(folder, RESET))
        ends_s = loop.time() + self._timing.restart_s
        while loop.time() < ends_s:
            found = await rshim.read_if_there()
            if found is not None and boots.is_after(found) and found.is_ready:
                return
            await asyncio.sleep(self._timing.poll_s)
        raise ActionFailed(f"rshim: the DPU was not ready {self._timing.restart_s:g} s after its reset")


def _reset_s(misc: Misc) -> int:
    """When a DPU was reset last, in seconds since the host was booted."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME)) - misc.up_s
