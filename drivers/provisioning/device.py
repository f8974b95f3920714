"""The executor of steps on a device: fence, read, adopt or start a task, follow it, and verify the result by a read.

The result of the previous attempt is not needed. This attempt opens a session, which ends the previous one's session,
and reads the device. A running or finished task of this step is adopted, and any other running task is cancelled. If no
task was adopted, the step is started as a task. An attempt may therefore fail at any point, and the step may be run
twice. A device that reports "done" is read again, since some devices report it without having done the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from drivers.backends.bmc import Bmc, Connect, Reading, Task, TaskFailed
from drivers.provisioning.attempts import Attempt, check_serial, checked_facts
from projections.field_checks import quoted
from projections.zones.dpus.phases import OS_INSTALLING, REBOOTING
from projections.zones.rows import Dpu

_IMAGE_SHOWN = 253
"""Maximum number of characters of an image's name in a message. The longest name that a request may have is shown
whole, because names often differ at their end only."""

TOKENS_PER_MS = 1 << 20
"""Number of tokens for each millisecond of log time. It exceeds the number of attempts at one DPU that can start within
a millisecond."""


def token_of(dpu: Dpu) -> int:
    """The fencing token of the running attempt: the log time of its start, and its number.

    The number alone is not sufficient, because a device refuses numbers below the highest one that it has seen. Numbers
    can become lower: attempts are counted from the offset of the DPU's registration, and the DPU may be deleted and
    registered again in a partition with lower offsets. After a restore of the log from a backup, the numbers of the
    attempts since the backup are used again.
    """
    return dpu.began_ms * TOKENS_PER_MS + dpu.attempt


UrlOf: TypeAlias = Callable[[str, str], Awaitable[str]]
"""The URL where a DPU finds the image with this identity and its configuration; empty for an image that the device
knows by its name. It may raise the errors of a device."""


async def no_url(dpu: str, image: str) -> str:
    """The URLs of a process without an image store."""
    return ""


class DeviceExecutor:
    """Executes steps as tasks of the device; `connect` returns the BMC at an address."""

    def __init__(self, connect: Connect, url_of: UrlOf = no_url) -> None:
        self._connect = connect
        self._url_of = url_of

    async def run(self, attempt: Attempt) -> dict[str, str]:
        """Execute the step. Returns the facts that the device reports afterwards. Raises the device's errors, or
        AttemptSuperseded.
        """
        dpu, token = attempt.dpu, token_of(attempt.dpu)
        bmc = self._connect(dpu.bmc_address)
        device = await attempt.call(partial(bmc.open, token))
        check_serial(dpu.serial, device.serial)
        if not _is_rebooted(dpu, device):
            task = await _adopted(attempt, bmc, device)
            if task is None:
                url = await self._url_of(attempt.name, dpu.image) if dpu.phase == OS_INSTALLING else ""
                task = await attempt.call(partial(bmc.start, token, attempt.step.name, dpu.image, url))
            await _follow(attempt, bmc, task)
            device = await attempt.call(partial(bmc.read, token), alters=False)
        _check_done(dpu, device)
        facts = {"serial": device.serial, "image": device.image, "boot_id": device.boot_id}
        return checked_facts(facts, "device")


async def _adopted(attempt: Attempt, bmc: Bmc, device: Reading) -> Task | None:
    """The running or finished task of an earlier attempt at this step. Any other running task is cancelled."""
    dpu = attempt.dpu
    found: Task | None = None
    for task in device.tasks:
        ours = (task.action, task.image) == (attempt.step.name, dpu.image) and _is_owned(dpu, task.token)
        if ours and task.state in ("running", "done"):
            found = task
        elif task.state == "running":
            await attempt.call(partial(bmc.cancel, token_of(dpu), task.id))
    return found


def _is_owned(dpu: Dpu, token: int) -> bool:
    """Whether tasks with this token may be adopted. The token must belong to an attempt of the DPU's present
    registration, at its present phase, that is later than `Dpu.disowned`."""
    number = dpu.disowned + (token - dpu.disowned) % TOKENS_PER_MS
    return dpu.disowned < number <= dpu.attempt and token - number >= dpu.since_ms * TOKENS_PER_MS


async def _follow(attempt: Attempt, bmc: Bmc, task: Task) -> None:
    """Follow the task to its end. Its id and each quarter of its progress are appended once."""
    stated = (attempt.dpu.task, attempt.dpu.percent // 25)
    wait_s = attempt.timing.poll_s
    while task.state == "running":
        percent = min(max(task.percent, 0), 100)  # a device may report any number; the log accepts only a percentage
        if (task.id, percent // 25) != stated:
            stated = (task.id, percent // 25)
            await attempt.report_progress(task.id, percent)
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.5, attempt.timing.poll_max_s)
        device = await attempt.call(partial(bmc.read, token_of(attempt.dpu)), alters=False)
        task = _same_task(task, device)
    if task.state != "done":
        raise TaskFailed(f"task: {task.id} ({task.action}) ended as {task.state}: {task.message}")


def _same_task(task: Task, device: Reading) -> Task:
    for found in device.tasks:
        if found.id == task.id:
            return found
    raise TaskFailed(f"task: {task.id} ({task.action}) is no longer known to the device")


def _is_rebooted(dpu: Dpu, device: Reading) -> bool:
    """Whether the required reboot has happened already. An earlier attempt may have rebooted the device without
    reporting it."""
    before = dpu.facts.get("boot_id", "")
    return dpu.phase == REBOOTING and before != "" and device.boot_id not in ("", before)


def _check_done(dpu: Dpu, device: Reading) -> None:
    if dpu.phase == OS_INSTALLING and device.image != dpu.image:
        runs, wanted = quoted(device.image, _IMAGE_SHOWN), quoted(dpu.image, _IMAGE_SHOWN)
        raise TaskFailed(f"image: the device runs {runs} after {wanted} was installed")
    before = dpu.facts.get("boot_id", "")
    if dpu.phase == REBOOTING and before and device.boot_id == before:
        raise TaskFailed(f"boot_id: the device reported a reboot, but its boot id is still {quoted(before)}")
