"""The rshim of a DPU, with its blocking work (`rshim`) on threads, within time limits.

A device that hangs blocks its thread for ever, but not the agent: the call fails at its limit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.devices import rshim_of
from deploy.host_agent.rshim import Misc, clear_log, keep_log, read_misc

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


class TimedRshim:
    """The rshim of one DPU. Each call raises ActionFailed."""

    def __init__(self, dev: Path, pci_address: str, timing: RshimTiming) -> None:
        self._dev = dev
        self._slot = pci_address.rpartition(".")[0]
        self._timing = timing
        self._seen_s = asyncio.get_running_loop().time()
        self._keeps_log = False
        """Whether the setting that clears the log is reset: an earlier agent may have been killed while it was set."""
        self._late: asyncio.Future[Any] | None = None
        """Work that took longer than its time limit, and may still use a file."""

    async def folder(self) -> Path:
        """The folder of the rshim, which may change while the card is reset."""
        name = await asyncio.to_thread(rshim_of, self._dev, self._slot)
        if not name:
            raise ActionFailed(f"rshim: the host has no rshim of the DPU at {self._slot}; is its driver running?")
        return self._dev / name

    async def read(self) -> Misc:
        """Read the settings and the log."""
        folder = await self.folder()
        if not self._keeps_log:
            await self.timed("keep its log", lambda: keep_log(folder))
            self._keeps_log = True
        return await self.timed("read", lambda: read_misc(folder))

    async def clear_log(self) -> Misc | None:
        """Read the settings and the log, and clear the log; None if it cannot be cleared now."""
        try:
            folder = await self.folder()
            return await self.timed("clear its log", lambda: clear_log(folder))
        except ActionFailed:
            return None  # the next read fails if the rshim is absent

    async def read_if_there(self) -> Misc | None:
        """Read the settings and the log; None if the rshim is absent for less than `gone_s`."""
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
