"""The next move of the staging of media, as it follows from the log and from what the BMC reports.

The BMC of a BlueField-4 that has entries for them in its firmware inventory takes the image and the configuration of an
installation into its own storage, each by a SimpleUpdate, and presents the files as virtual media afterwards:

    image asked -> started -> ended -> config asked -> started -> ended

Staging changes nothing that the DPU runs, so the next attempt stages a part again whose task the BMC has forgotten. The
log says which tasks are those of the installation, so that a running one is followed and not begun anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from drivers.redfish.update_moves import SETTLE_S, Asked, SeenTask, Started, logged_of, mark_of, own_task

IMAGE, CONFIG = "image", "config"
"""The parts: the image of an installer, and the configuration that it reads."""
ENTRIES: Mapping[str, str] = {IMAGE: "BlueField_OS_Image_CPU_0", CONFIG: "BlueField_OS_Config_CPU_0"}
"""The entry of the firmware inventory that takes each part, as of DPF 26.10."""
FILES: Mapping[str, str] = {
    IMAGE: "file:///media/bf_arm_os/image/image.iso",
    CONFIG: "file:///media/bf_arm_os/config/config.iso",
}
"""Where the BMC keeps each part."""
_SEPARATOR = ": "


class MediaPart(NamedTuple):
    """A part of the media, with the update that brings it to the BMC."""

    part: str
    update: Asked | Started

    def text(self) -> str:
        return f"{self.part}{_SEPARATOR}{self.update.text()}"


class MediaStagingOrder(NamedTuple):
    """The wanted parts, in the order of staging, each with the identity of its content. `attempt` is the running
    one, and `disowned` the last one whose installation has failed."""

    targets: Mapping[str, str]
    attempt: int
    disowned: int


class SeenMediaStaging(NamedTuple):
    """The state of the BMC, as of one read. `tasks` are the last ones, in order. `quiet_s` is the time for which this
    attempt has seen no change of them."""

    tasks: tuple[SeenTask, ...]
    quiet_s: float


class SendUpdate(NamedTuple):
    """Send the update for a part, after an event with the known tasks was appended."""

    part: str
    known: tuple[str, ...]


class MediaStagingWait(NamedTuple):
    """Look again. `staged` is the task to follow."""

    staged: MediaPart
    percent: int = 0


class MediaStagingDone(NamedTuple):
    """The BMC has all parts."""


class MediaStagingFailed(NamedTuple):
    """It failed, or cannot begin. The kind is that of the failure of a step."""

    kind: Literal["transient", "device"]
    message: str


MediaStagingMove: TypeAlias = SendUpdate | MediaStagingWait | MediaStagingDone | MediaStagingFailed


def next_media_staging_move(
    order: MediaStagingOrder, logged: MediaPart | None, seen: SeenMediaStaging
) -> MediaStagingMove:
    """The next move. It never raises."""
    parts = list(order.targets)
    if logged is None or logged.update.attempt <= order.disowned or logged.part not in order.targets:
        return _first(parts[0], seen)
    part, update = logged
    task = own_task(order.targets[part], update, seen.tasks)
    if task is None:
        return _without_task(order, logged, seen)
    if task.state == "running":
        return MediaStagingWait(MediaPart(part, Started(task.id, update.attempt)), task.percent)
    if task.state == "failed":
        reason = task.message or "the BMC gave no reason"
        return MediaStagingFailed("device", f"task: {task.id}, which stages the {part}, failed: {reason}")
    left = parts[parts.index(part) + 1 :]
    return _first(left[0], seen) if left else MediaStagingDone()


def _first(part: str, seen: SeenMediaStaging) -> MediaStagingMove:
    """The first move for a part. No update for it was sent yet, so a running update belongs to another program."""
    for task in seen.tasks:
        if task.is_update and task.state == "running":
            message = f"device: another update is in progress (task {task.id}, {task.percent} %)"
            return MediaStagingFailed("transient", message)
    return SendUpdate(part, tuple(mark_of(task.id) for task in seen.tasks))


def _without_task(order: MediaStagingOrder, logged: MediaPart, seen: SeenMediaStaging) -> MediaStagingMove:
    """The BMC has no task of the update: the request did not arrive, or the BMC has restarted and forgotten it."""
    if isinstance(logged.update, Asked) or logged.update.attempt != order.attempt:
        return _first(logged.part, seen)
    if seen.quiet_s < SETTLE_S:
        return MediaStagingWait(logged)
    message = f"task: the BMC no longer knows task {logged.update.task}, which stages the {logged.part}"
    return MediaStagingFailed("device", message)


def logged_media_staging(text: str) -> MediaPart | None:
    """The last event about a staging, read from its text (`text()`)."""
    part, separator, rest = text.partition(_SEPARATOR)
    update = logged_of(rest) if separator and part in ENTRIES else None
    return MediaPart(part, update) if update is not None else None
