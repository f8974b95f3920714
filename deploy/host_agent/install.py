"""Installs an image on a DPU through its rshim.

The plane records the percentage of a task, and returns it to an agent that was killed and starts again:

    0 -> BEGUN, before the device is touched -> FINAL, before the last block -> WRITTEN -> INSTALLING -> ENDED -> ready

At BEGUN, the agent writes the whole stream again: the earlier stream was cut, and the DPU does not boot from it. At
FINAL, the device may have the last block. Only the log of the rshim shows it, because the installer of the image writes
to it soon after the whole stream has arrived. The last block is written after the digest of the whole image was
compared, so a DPU never boots from a wrong image. From WRITTEN on, the agent follows the log (`install_progress`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.image_source import OpenImage, Stream
from deploy.host_agent.install_progress import BEGUN, FINAL, WRITTEN, InstallProgress
from deploy.host_agent.rshim import FollowedLog, Misc, ResetDetector, open_boot, write_all
from deploy.host_agent.timed_rshim import RshimTiming, TimedRshim
from schemas.api import dpuplane_pb2 as pb

HELD_BYTES = 1 << 20
"""The end of the image, which is written after the digest of all was compared. It is longer than any configuration, so
it has a part of the image itself."""

_TIMING = RshimTiming()


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
        rshim = TimedRshim(self._dev, task.pci_address, self._timing)
        if task.percent >= WRITTEN or (task.percent >= FINAL and await self._shows_installer(rshim)):
            percent, is_recorded = max(task.percent, WRITTEN), task.percent >= WRITTEN
            reached = InstallProgress(progress, percent, _image(task), is_recorded=is_recorded, is_followed=False)
            await self._follow(rshim, reached, None)
            return
        before = await rshim.read()
        self._check_idle(before)
        await self._write(task, rshim, progress)
        is_recorded = await progress(WRITTEN, "waits for the installer of the image")
        reached = InstallProgress(progress, WRITTEN, _image(task), is_recorded=is_recorded, is_followed=True)
        await self._follow(rshim, reached, before)

    async def _shows_installer(self, rshim: TimedRshim) -> bool:
        """Whether the installer of the image begins within `settle_s`."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timing.settle_s
        while loop.time() < ends_s:
            misc = await rshim.read_if_there()
            if misc is not None and misc.installs:
                return True
            await asyncio.sleep(self._timing.poll_s)
        return False

    def _check_idle(self, misc: Misc) -> None:
        """Raise ActionFailed if another program installs an image: a reset would leave the DPU without an operating
        system."""
        if misc.installs and not misc.fault and 0 <= misc.up_s < self._timing.install_s:
            raise ActionFailed("rshim: another program installs an image on the DPU; wait until it has ended")

    async def _write(self, task: pb.HostTask, rshim: TimedRshim, progress: Progress) -> None:
        folder = await rshim.folder()
        async with self._source(task.url) as stream:
            await progress(BEGUN, "writes the image", is_required=True)
            handle = await rshim.timed("begin a boot stream", lambda: open_boot(folder), undo=os.close)
            try:
                await self._copy(stream, handle, rshim, progress)
            finally:
                await rshim.close(handle)

    async def _copy(self, stream: Stream, handle: int, rshim: TimedRshim, progress: Progress) -> None:
        digest, count, reported, held = hashlib.sha256(), 0, BEGUN, bytearray()
        async for chunk in stream.chunks:
            digest.update(chunk)
            count += len(chunk)
            held += chunk
            if len(held) >= 2 * self._held_bytes:
                block = bytes(held[: -self._held_bytes])
                del held[: len(block)]
                await rshim.timed("take the image", lambda block=block: write_all(handle, block))  # type: ignore[misc]
            percent = BEGUN + (FINAL - BEGUN - 1) * count // stream.size
            if percent >= reported + 10:
                reported = percent
                await progress(percent, "writes the image")
        if count != stream.size or digest.digest() != stream.sha256:
            raise ActionFailed(f"image: {count} bytes arrived, which do not have the size and digest that were stated")
        await progress(FINAL, "writes the last block of the image", is_required=True)
        await rshim.timed("take the image", lambda: write_all(handle, bytes(held)))

    async def _follow(self, rshim: TimedRshim, reached: InstallProgress, before: Misc | None) -> None:
        """Follow the log until the DPU is ready. `before` is the content of `misc` from before this agent wrote the
        image; None if an earlier agent wrote it."""
        loop, detector, log = asyncio.get_running_loop(), ResetDetector(before), FollowedLog()
        ends_s = loop.time() + self._timing.install_s
        while loop.time() < ends_s:
            found = await rshim.read_if_there()
            if found is not None and detector.is_after(found):
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
    """The name of the image of a task, from its URL."""
    return next(iter(parse_qs(urlsplit(task.url).query).get("image", ())), "the image")
