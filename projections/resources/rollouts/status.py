"""Where a DPU is in its rollout, from its row and from what is observed of it."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from projections.resources.rollouts.rows import DpuRollout


class Status(IntEnum):
    """Where a DPU is. A DPU is available if it is ready with the image that it was released to."""

    OUTDATED = 1
    """Available with another image than the wanted one."""
    BROKEN = 2
    """Not available, and not released to the wanted image: its release takes nothing out of service."""
    UPDATING = 3
    """Released to the wanted image, and not ready with it yet."""
    FAILED = 4
    """Its installation of the wanted image failed for good."""
    DONE = 5
    """Available with the wanted image."""

    @property
    def is_available(self) -> bool:
        return self in (Status.OUTDATED, Status.DONE)


class Installed(msgspec.Struct, frozen=True):
    """The fields of an observation of a DPU that rollouts use. `image` is the identity that its zone works on."""

    ready: bool = False
    phase: str = ""
    installed: str = ""
    image: str = ""


_NOTHING = Installed()
_decoder = msgspec.json.Decoder(Installed)


def read_installed(observation: str | None) -> Installed:
    """These fields of an observation. One that cannot be read counts as none."""
    if observation is None:
        return _NOTHING
    try:
        return _decoder.decode(observation)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return _NOTHING


def status_of(row: DpuRollout, seen: Installed) -> Status:
    """Where a DPU is in its rollout."""
    is_available = seen.ready and seen.installed == row.released
    if row.released != row.wanted:
        return Status.OUTDATED if is_available else Status.BROKEN
    if is_available:
        return Status.DONE
    return Status.FAILED if seen.phase == "Error" and seen.image == row.released else Status.UPDATING
