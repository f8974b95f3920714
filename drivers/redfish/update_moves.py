"""The next move of an installation by SimpleUpdate, as it follows from the log and from what the BMC reports.

An update must never be sent twice, although its answer may be lost, the plane may stop, and a BMC forgets its tasks
when it restarts. So the attempt appends an event before the request, with the tasks that the BMC has, and another one
after it, with the task that the request has made:

    "" -> asked -> started -> the task has ended -> the DPU has booted since -> its versions are those of the image

A task that appears after "asked" is the task of the request, even if its answer was lost. If none appears, the request
did not arrive: it belonged to a session that this attempt has ended. A BMC that reports "completed" may not have
installed anything, so only a boot and the versions of the running image prove it.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from drivers.redfish.resources import Task, versions_text

SETTLE_S = 180.0
"""Longest time for which a BMC may report the old state after an update has ended, or after the operating system has
started. DPF waits for this time without looking."""
BOOT_S = 1_200.0
"""Longest time from the end of a task until the operating system runs."""
TASKS_MAX = 16
"""Maximum number of tasks that are looked at, the last ones. bmcweb keeps 100."""
_ASKED = re.compile(r"update asked by attempt (\d+) after tasks? ?(\S*)")
_STARTED = re.compile(r"(\S+) of attempt (\d+)")
_TOKEN = re.compile(r"/images/([A-Za-z0-9_-]+)(?:\.|/)")
_RUNNING = frozenset(("New", "Pending", "Starting", "Running", "Stopping", "Suspended", "Service", "Interrupted"))
_ID_MAX = 40
_MARK_MAX = 8
"""Maximum number of characters of a mark: all of them fit a line of the log."""

TaskState: TypeAlias = Literal["running", "completed", "failed"]


class Asked(NamedTuple):
    """An update may have been sent by this attempt. `known` are the marks of the tasks that the BMC had before."""

    attempt: int
    known: tuple[str, ...]

    def text(self) -> str:
        return f"update asked by attempt {self.attempt} after tasks {','.join(self.known) or 'none'}"


class Started(NamedTuple):
    """An update is this task of the BMC."""

    task: str
    attempt: int

    def text(self) -> str:
        return f"{self.task} of attempt {self.attempt}"


Logged: TypeAlias = Asked | Started | None


class SeenTask(NamedTuple):
    """A task of the BMC. `target` identifies what it installs, empty if the BMC does not say."""

    id: str
    state: TaskState
    percent: int
    message: str
    target: str
    is_update: bool


class Seen(NamedTuple):
    """The state of the BMC, as of one read. `tasks` are the last ones, in order. `quiet_s` is the time for which this
    attempt has seen no change of the tasks, of the boot and of `is_up`."""

    tasks: tuple[SeenTask, ...]
    boot_id: str
    is_up: bool
    versions: Mapping[str, str]
    quiet_s: float


class Order(NamedTuple):
    """The wanted installation. `disowned` is the last attempt whose task has failed. `boot_id` is that of the boot
    before the installation, and `before` are the versions of then. `versions` are those of the image, as far as they
    are known. `attempt` is the running one."""

    target: str
    disowned: int
    boot_id: str = ""
    versions: Mapping[str, str] = {}
    before: Mapping[str, str] = {}
    attempt: int = 0


class Submit(NamedTuple):
    """Send the update, after an event with these tasks was appended."""

    known: tuple[str, ...]


class Wait(NamedTuple):
    """Look again. `started` is the task to follow, if it is known."""

    message: str
    percent: int = 0
    started: Started | None = None


class Done(NamedTuple):
    """The DPU runs the image."""


class Failed(NamedTuple):
    """The installation failed, or cannot begin. The kind is that of the failure of a step."""

    kind: Literal["transient", "device"]
    message: str


Move: TypeAlias = Submit | Wait | Done | Failed


def next_move(order: Order, logged: Logged, seen: Seen) -> Move:
    """The next move. It never raises."""
    if logged is not None and logged.attempt <= order.disowned:
        logged = None
    if logged is None:
        return _first(seen)
    task = own_task(order.target, logged, seen.tasks)
    if task is None:
        return _without_task(order, logged, seen)
    started = Started(task.id, logged.attempt)
    if task.state == "running":
        return Wait(task.message, task.percent, started)
    if task.state == "failed":
        return Failed("device", f"task: {task.id} failed: {task.message or 'the BMC gave no reason'}")
    return _verified(order, started, seen)


def _first(seen: Seen) -> Move:
    """The first move. This installation has sent nothing yet, so a running update belongs to another program."""
    for task in seen.tasks:
        if task.is_update and task.state == "running":
            return Failed("transient", f"device: another update is in progress (task {task.id}, {task.percent} %)")
    return Submit(tuple(mark_of(task.id) for task in seen.tasks))


def own_task(target: str, logged: Asked | Started, tasks: Sequence[SeenTask]) -> SeenTask | None:
    """The task of an update of what `target` identifies; None if the BMC has none."""
    if isinstance(logged, Started):
        return next((task for task in tasks if task.id == logged.task), None)
    fresh = [task for task in tasks if task.is_update and mark_of(task.id) not in logged.known]
    return next((task for task in reversed(fresh) if task.target in ("", target)), None)


def _without_task(order: Order, logged: Asked | Started, seen: Seen) -> Move:
    """The BMC has no task of the update: the request did not arrive, or the BMC has restarted and forgotten it. An
    attempt that looks after its own request knows that the BMC has accepted it: no answer would have ended it."""
    if isinstance(logged, Asked) and logged.attempt != order.attempt and not _has_booted(order, seen):
        return _first(seen)
    if seen.is_up and _is_proved(order, seen):
        return Done()
    if seen.quiet_s < (SETTLE_S if seen.is_up else BOOT_S):
        return Wait("waits for the BMC to show what became of its task")
    what = f"task {logged.task}" if isinstance(logged, Started) else "the task of the update"
    return Failed("device", f"task: the BMC no longer knows {what}, and nothing shows that the DPU runs the image")


def _verified(order: Order, started: Started, seen: Seen) -> Move:
    """The task has completed."""
    differing = _differing(order, seen)
    if seen.is_up and _has_booted(order, seen) and not differing:
        return Done()
    if seen.quiet_s < (SETTLE_S if seen.is_up else BOOT_S):
        waits_for = "the versions of the installed image" if seen.is_up and differing else "the DPU to boot"
        return Wait(f"waits for {waits_for}", 100, started)
    if not seen.is_up:
        return Failed("device", f"task: {started.task} completed, but the operating system does not run")
    if not _has_booted(order, seen):
        return Failed("device", f"task: {started.task} completed, but the DPU has not booted since")
    has = versions_text({name: seen.versions[name] for name in differing})
    wanted = versions_text({name: order.versions[name] for name in differing})
    return Failed("device", f"image: after task {started.task} the DPU has {has}, but the image has {wanted}")


def _has_booted(order: Order, seen: Seen) -> bool:
    """Whether the DPU has booted since the installation was prepared. A BMC that reports no boots proves nothing."""
    return not order.boot_id or not seen.boot_id or seen.boot_id != order.boot_id


def _is_proved(order: Order, seen: Seen) -> bool:
    """Whether the versions prove the installation without its task: they are those of the image now, and were others
    before."""
    has_changed = any(order.before.get(name) != version for name, version in order.versions.items())
    return has_changed and _has_booted(order, seen) and order.versions.items() <= dict(seen.versions).items()


def _differing(order: Order, seen: Seen) -> list[str]:
    return [name for name, version in order.versions.items() if seen.versions.get(name, version) != version]


def mark_of(task: str) -> str:
    """A text for a task that is short enough for the log: its id, or a hash of it."""
    return task if len(task) <= _MARK_MAX and "," not in task else f"{zlib.crc32(task.encode()):08x}"


def logged_of(text: str) -> Logged:
    """The last event about an update, read from its text (`text()`)."""
    if found := _ASKED.fullmatch(text):
        return Asked(int(found[1]), () if found[2] == "none" else tuple(filter(None, found[2].split(","))))
    if found := _STARTED.fullmatch(text):
        return Started(found[1], int(found[2]))
    return None


def seen_task(task: Task) -> SeenTask:
    """A task as the plane reads it. A task without its request may be an update."""
    state: TaskState = "running"
    if task.task_state == "Completed":
        state = "completed"
    elif task.task_state not in _RUNNING and task.task_state is not None:
        state = "failed"
    payload = task.payload
    uri = (payload.target_uri or "") if payload is not None else ""
    texts = [each.message for each in task.messages if each.message]
    percent = min(100, max(0, int(task.percent_complete or 0)))
    name = "".join((task.id or task.path.rstrip("/").rpartition("/")[2]).split())[:_ID_MAX]
    target = target_of(payload.image_uri) if payload is not None else ""
    return SeenTask(name, state, percent, texts[-1] if texts else "", target, not uri or "UpdateService" in uri)


def target_of(uri: str) -> str:
    """The image and the DPU of an image URI. The URIs of one installation differ in the time at which their token
    expires; a BMC may leave out the scheme."""
    found = _TOKEN.search(uri)
    if found is None:
        return uri.partition("://")[2] or uri
    try:
        dpu, identity, _ = msgspec.json.decode(
            base64.b64decode(found[1] + "=" * (-len(found[1]) % 4), altchars=b"-_", validate=True),
            type=tuple[str, str, int],
        )
    except (binascii.Error, ValueError):
        return uri.partition("://")[2] or uri
    return f"{identity} on {dpu}"
