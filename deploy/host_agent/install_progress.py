"""The progress of an installation of a DPU, from the log of its rshim.

A DPU that is ready counts as installed only if an agent has seen the last line of its installer. Without that line, the
log is the same for a new system, for one that lacks its configuration or firmware, and for the old system of a DPU that
was reset before. An agent that was away meanwhile cannot tell these apart, so its attempt fails, and the next one
installs again. That may be one installation more than needed, but most agents are away because their host is off, and
the card is off with its host. A DPU with the wrong image would serve unnoticed; during an installation it does not
serve.

The log of a rshim is short, and the last line of an installer may not fit. So the agent clears a log that fills, until
it has seen that line. It clears the log only after the plane has recorded WRITTEN: an agent that starts again then
needs none of the cleared lines. The log may still be full before that, or if its driver cannot clear it. An agent that
has followed a full log from the beginning of the boot accepts the first lines of the installer, because its last one
may be missing. In that case a DPU that loses its power during the installation counts as installed.
"""

from __future__ import annotations

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.rshim import CLEAR_WORDS, FULL_WORDS, Misc

BEGUN, FINAL, WRITTEN, INSTALLING, ENDED = 1, 45, 50, 75, 90
"""Percentages of a task: before the device is touched, before the last block of the image, after it, after the first
line of the installer, and after its last line."""

_SEEN = {INSTALLING: "the DPU installs the image", ENDED: "waits until the DPU is ready"}


class InstallProgress:
    """The progress of one installation. `is_recorded` says whether the plane has recorded that the image is written,
    and `is_followed` whether this agent has followed the log from the beginning of the boot."""

    def __init__(self, progress: Progress, percent: int, image: str, *, is_recorded: bool, is_followed: bool) -> None:
        self._progress = progress
        self._percent = percent
        self._image = image
        self._is_recorded = is_recorded
        self._is_followed = is_followed
        self._is_full = self._is_full_reported = False

    async def note(self, misc: Misc) -> None:
        """Report the progress that the log shows."""
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
        if self._is_full and self._percent < ENDED and not self._is_full_reported:
            self._is_full_reported = True
            await self._progress(self._percent, "the DPU installs the image; the log of its rshim is full")

    def check(self) -> None:
        """Raise ActionFailed for a DPU that is ready, although no installation was seen."""
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
