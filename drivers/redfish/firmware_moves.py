"""The next move of an update of a BMC's own firmware, as it follows from the log and from what the BMC reports.

The version in the firmware inventory decides: firmware that the BMC has is never sent. An update has two parts, and an
event is appended before each of them: the transfer, which is a task, and the restart that makes the new firmware
active. A BMC forgets its tasks in that restart, so from then on only the version proves the update.

    asked -> started -> the task has ended -> restart asked -> the BMC answers again -> its version is of the package
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Literal, NamedTuple, TypeAlias

from drivers.redfish.update_moves import SETTLE_S, Asked, Logged, SeenTask, Started, logged_of, mark_of, own_task

_PULLED, _PUSHED = "firmware: ", "pushed firmware: "
_RESTART = re.compile(r"restart of the BMC asked by attempt (\d+)")


class RestartAsked(NamedTuple):
    """A restart of the BMC may have been sent by this attempt."""

    attempt: int

    def text(self) -> str:
        return f"restart of the BMC asked by attempt {self.attempt}"


FirmwareLogged: TypeAlias = Logged | RestartAsked


class SeenFirmware(NamedTuple):
    """The state of the BMC, as of one read: its tasks, the version of its firmware, and that of firmware which waits
    for a restart. `quiet_s` is the time for which this attempt has seen no change of them."""

    tasks: tuple[SeenTask, ...]
    version: str
    pending: str
    quiet_s: float


class FirmwareOrder(NamedTuple):
    """The wanted firmware: one of these versions. `target` identifies the package, `attempt` is the running one, and
    `disowned` the last one whose update has failed."""

    versions: Set[str]
    target: str
    attempt: int
    disowned: int


class SubmitFirmware(NamedTuple):
    """Send the update, after an event with these tasks was appended."""

    known: tuple[str, ...]


class Activate(NamedTuple):
    """Restart the BMC with the new firmware, after an event about it was appended."""


class FirmwareWait(NamedTuple):
    """Look again. `started` is the task to follow, if it is known."""

    percent: int = 0
    started: Started | None = None


class Current(NamedTuple):
    """The BMC has the firmware."""


class FirmwareFailed(NamedTuple):
    """The update failed, or cannot begin. The kind is that of the failure of a step."""

    kind: Literal["transient", "device"]
    message: str


FirmwareMove: TypeAlias = SubmitFirmware | Activate | FirmwareWait | Current | FirmwareFailed


def next_firmware_move(order: FirmwareOrder, logged: FirmwareLogged, seen: SeenFirmware) -> FirmwareMove:
    """The next move. It never raises."""
    if seen.version in order.versions:
        return Current()
    if logged is not None and logged.attempt <= order.disowned:
        logged = None
    is_pending = seen.pending in order.versions
    if isinstance(logged, RestartAsked):
        if is_pending and logged.attempt != order.attempt and seen.quiet_s >= SETTLE_S:
            return Activate()  # the request did not arrive: it belonged to a session that has ended
        if seen.quiet_s < SETTLE_S:
            return FirmwareWait(100)
        wanted = ", ".join(sorted(order.versions))
        return FirmwareFailed("device", f"firmware: after its restart the BMC has {seen.version}, not one of {wanted}")
    if is_pending:
        return Activate()
    if logged is None:
        return _first(seen)
    task = own_task(order.target, logged, seen.tasks)
    if task is None:
        return _without_task(order, logged, seen)
    if task.state == "running":
        return FirmwareWait(task.percent, Started(task.id, logged.attempt))
    if task.state == "failed":
        reason = task.message or "the BMC gave no reason"
        return FirmwareFailed("device", f"firmware: task {task.id} failed: {reason}")
    return Activate()


def _first(seen: SeenFirmware) -> FirmwareMove:
    """The first move. This update has sent nothing yet, so a running update belongs to another program."""
    for task in seen.tasks:
        if task.is_update and task.state == "running":
            message = f"device: another update is in progress (task {task.id}, {task.percent} %)"
            return FirmwareFailed("transient", message)
    return SubmitFirmware(tuple(mark_of(task.id) for task in seen.tasks))


def _without_task(order: FirmwareOrder, logged: Asked | Started, seen: SeenFirmware) -> FirmwareMove:
    """The BMC has no task of the update: the request did not arrive, or the BMC has restarted and forgotten it. An
    attempt that looks after its own request knows that the BMC has accepted it: no answer would have ended it."""
    if isinstance(logged, Asked) and logged.attempt != order.attempt:
        return _first(seen)
    if seen.quiet_s < SETTLE_S:
        return FirmwareWait()
    what = f"task {logged.task}" if isinstance(logged, Started) else "the task of the update"
    return FirmwareFailed("device", f"firmware: the BMC no longer knows {what}, and has {seen.version}")


def firmware_text(logged: Asked | Started | RestartAsked, *, is_pushed: bool = False) -> str:
    """The text of the event, which `logged_firmware` reads."""
    return f"{_PUSHED if is_pushed else _PULLED}{logged.text()}"


def has_pull_failed(text: str, disowned: int) -> bool:
    """Whether the last update that the log knows was one by URL, whose task has failed."""
    logged = logged_firmware(text)
    return text.startswith(_PULLED) and isinstance(logged, Started) and logged.attempt <= disowned


def is_pushed(text: str) -> bool:
    """Whether the last update that the log knows was a push."""
    return text.startswith(_PUSHED)


def logged_firmware(text: str) -> FirmwareLogged:
    """The last event about an update of firmware, read from its text (`firmware_text`)."""
    prefix = next((each for each in (_PULLED, _PUSHED) if text.startswith(each)), "")
    if not prefix:
        return None
    rest = text.removeprefix(prefix)
    if found := _RESTART.fullmatch(rest):
        return RestartAsked(int(found[1]))
    return logged_of(rest)
