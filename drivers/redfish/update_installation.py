"""An installation by SimpleUpdate, as one attempt executes it: it reads the BMC, and makes the next move (update_moves)
until the DPU runs the image."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.redfish.answers import decoded
from drivers.redfish.client import Answer
from drivers.redfish.connection import VERSIONS, Connection
from drivers.redfish.polling import Polling
from drivers.redfish.resources import ROOT, Link, Request, System, Task
from drivers.redfish.update_moves import (
    TASKS_MAX,
    Asked,
    Done,
    Failed,
    Logged,
    Order,
    Seen,
    SeenTask,
    Started,
    Submit,
    Wait,
    logged_of,
    next_move,
    seen_task,
    target_of,
)
from projections.resources.specs import JSON

_TARGET = f"{ROOT}/UpdateService/FirmwareInventory/DPU_OS"


class UpdateInstallation:
    """The installation of one attempt. `url` gives the URL of the image, with a token that lasts."""

    def __init__(self, bmc: Connection, url: Callable[[], Awaitable[str]], versions: Mapping[str, str]) -> None:
        self._bmc = bmc
        self._attempt = bmc.attempt
        self._url = url
        self._versions = versions
        self._logged: Logged = logged_of(bmc.attempt.dpu.task)
        self._quarter = -1
        self._reported = ""
        self._polling = Polling(bmc.attempt.timing)

    async def run(self) -> None:
        """Install the image. Raises the errors of a device."""
        order = await self._order()
        while True:
            seen = await self._polling.read(self._look)
            match next_move(order, self._logged, seen):
                case Done():
                    return
                case Failed(kind, message):
                    raise (Unreachable if kind == "transient" else TaskFailed)(message)
                case Submit(known):
                    await self._submit(known)
                    self._polling.restart()
                case Wait() as wait:
                    await self._report(wait)
                    await self._polling.pause()

    async def _order(self) -> Order:
        dpu = self._attempt.dpu
        before = {name: dpu.facts[fact] for name, fact in VERSIONS.items() if fact in dpu.facts}
        boot_id = dpu.facts.get("boot_id", "")
        return Order(target_of(await self._url()), dpu.disowned, boot_id, self._versions, before, dpu.attempt)

    async def _look(self) -> Seen:
        tasks = await self._tasks()
        is_running = any(task.state == "running" for task in tasks)
        own_runs = is_running and isinstance(self._logged, Started)
        system = System() if own_runs else await self._bmc.read_system()  # a poll of a running task is one request
        versions = {} if is_running or not system.is_up else await self._bmc.read_versions()
        shape = tuple((task.id, task.state) for task in tasks), system.boot_id, system.is_up
        return Seen(tasks, system.boot_id, system.is_up, versions, self._polling.quiet_s(shape))

    async def _tasks(self) -> tuple[SeenTask, ...]:
        """The last tasks of the BMC. While the own one is known, only that is read."""
        logged = self._logged
        is_own = isinstance(logged, Started) and logged.attempt > self._attempt.dpu.disowned
        return await read_tasks(self._bmc, logged.task if is_own and isinstance(logged, Started) else "")

    async def _submit(self, known: tuple[str, ...]) -> None:
        """Send the update once. An event is appended first, so that a successor knows that it may have been sent."""
        url = await self._url()
        asked = Asked(self._attempt.dpu.attempt, known)
        await self._attempt.report_progress(asked.text(), 0)
        self._logged = asked
        request = simple_update(url, [_TARGET])
        answer = await self._attempt.call(partial(self._bmc.client.send, request))
        if name := task_of(self._bmc, answer):
            self._logged = Started(name, asked.attempt)
            await self._attempt.report_progress(self._logged.text(), 0)

    async def _report(self, wait: Wait) -> None:
        """Append the task, once it is known, and each quarter of its progress."""
        if wait.started is None:
            return
        self._logged = wait.started
        text, quarter = wait.started.text(), wait.percent // 25
        if (text, quarter) != (self._reported, self._quarter):
            self._reported, self._quarter = text, quarter
            await self._attempt.report_progress(text, wait.percent)


def simple_update(url: str, targets: Sequence[str]) -> Request:
    """The request for an update from a URL. Without targets, its content names them."""
    body: JSON = {"TransferProtocol": url.partition("://")[0].upper(), "ImageURI": url}
    if targets:
        body["Targets"] = list(targets)
    return Request("POST", f"{ROOT}/UpdateService/Actions/UpdateService.SimpleUpdate", body)


async def read_tasks(bmc: Connection, own: str = "") -> tuple[SeenTask, ...]:
    """The last tasks of a BMC, or only the one with this id."""
    call, client = bmc.attempt.call, bmc.client
    collection = f"{ROOT}/TaskService/Tasks"
    if own:
        task = await call(partial(client.find, f"{collection}/{own}", Task), alters=False)
        return (seen_task(task),) if task is not None else ()
    found = []
    for path in list(await call(partial(client.members, Link(collection)), alters=False))[-TASKS_MAX:]:
        task = await call(partial(client.find, path, Task), alters=False)
        if task is not None:
            found.append(seen_task(task))
    return tuple(found)


def task_of(bmc: Connection, answer: Answer) -> str:
    """The id of the task that an update has made, empty if the BMC does not say it. Raises TaskFailed."""
    if answer.status != 202:
        raise TaskFailed(f"device: {bmc.client.host} answered an update with HTTP {answer.status}, not 202")
    task = decoded(bmc.client.host, answer.content, Task)
    parts = answer.location.rstrip("/").split("/")  # of the task, or of its monitor
    located = parts[parts.index("Tasks") + 1] if "Tasks" in parts[:-1] else ""
    return task.id or task.path.rstrip("/").rpartition("/")[2] or located
