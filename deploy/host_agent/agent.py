"""The agent of a host: it reports the host and its DPUs, asks for its tasks, and does them.

The agent remembers nothing. A task is open in the log until the agent has reported its end. A killed agent asks for its
open tasks when it starts again, and does them from the beginning. Its first report is always appended to the log, so
the answer to its first question for tasks is as new as that, and has no task whose end it had reported before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from commands.client.client import PlaneClient
from commands.client.errors import CallFailed
from deploy.host_agent.actions import Action, ActionFailed, NothingToDo
from deploy.host_agent.boot import Boot
from eventstore.errors import PermanentError
from projections.resources.host_tasks import DONE, FAILED, RUNNING, FoundDevice
from schemas.api import dpuplane_pb2 as pb

logger = logging.getLogger(__name__)

REPORTED = (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED)


class HostIdentity(NamedTuple):
    """The host, the namespace of its objects, and the id of this run of the agent."""

    node: str
    namespace: str
    run_id: str


class HostAgent:
    """Serves until `run` is cancelled. `devices` finds the DPUs of the host; `actions` are by the action of a task."""

    def __init__(
        self,
        client: PlaneClient,
        identity: HostIdentity,
        *,
        boot: Callable[[], Boot],
        devices: Callable[[], Sequence[FoundDevice]],
        actions: Mapping[str, Action],
        interval_s: float,
        rng: Random,
    ) -> None:
        self._client = client
        self._identity = identity
        self._boot = boot
        self._devices = devices
        self._actions = actions
        self._interval_s = interval_s
        self._rng = rng
        self._running: dict[str, asyncio.Task[None]] = {}
        self._logged: tuple[str, ...] | None = None
        """The PCI addresses of the DPUs in the last log line about them."""
        self._reporting = asyncio.Lock()
        """The plane keeps the whole of the last report, so an older one must not arrive after it."""

    async def run(self) -> None:
        """Report and work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    running = {*self._running}
                    position = await self._report()
                    await self._begin_and_cancel(tasks, position, running)
                except (CallFailed, PermanentError) as error:
                    logger.warning("host not reported, retrying in %.0f s: %s", self._interval_s, error)
                await asyncio.sleep(self._interval_s * self._rng.uniform(0.8, 1.2))

    async def _begin_and_cancel(self, tasks: asyncio.TaskGroup, position: str, before: set[str]) -> None:
        """Begin the open tasks, and cancel those that the plane no longer wants.

        A task that ran before the report with this position is not begun: it may have ended since, and the answer may
        be older than its end.
        """
        node, namespace, _ = self._identity
        request = pb.GetHostTasksRequest(node=node, namespace=namespace, min_position=position)
        found = await self._client.query("GetHostTasks", request)
        wanted = {task.id: task for task in found.tasks}
        for name in self._running.keys() - wanted.keys():
            self._running[name].cancel()
        for name in wanted.keys() - self._running.keys() - before:
            if not wanted[name].frozen:
                self._running[name] = tasks.create_task(self._do(wanted[name]))

    async def _do(self, task: pb.HostTask) -> None:
        """Do a task and report its end. It begins again at the next question for tasks if its end is not reported."""

        about = {"task": task.id, "action": task.action}

        async def progress(percent: int, message: str, *, is_required: bool = False) -> bool:
            """Report progress. An outage of the plane must not end an installation that needs nothing of it."""
            try:
                await self._report(pb.HostTaskState(id=task.id, state=RUNNING, percent=percent, message=message))
            except (CallFailed, PermanentError) as error:
                if is_required:
                    raise
                logger.warning("progress of a task not reported: %s", error, extra=about)
                return False
            return True

        try:
            await progress(task.percent, task.message, is_required=True)
            logger.info("task started", extra=about)
            await self._actions.get(task.action, NothingToDo()).run(task, progress)
            await self._report(pb.HostTaskState(id=task.id, state=DONE, percent=100))
            logger.info("task ended", extra=about)
        except ActionFailed as error:
            logger.warning("task failed: %s", error, extra=about)
            await self._report_failure(task, str(error))
        except (CallFailed, PermanentError) as error:
            logger.warning("task not reported, doing it again: %s", error, extra=about)
        finally:
            self._running.pop(task.id, None)

    async def _report_failure(self, task: pb.HostTask, message: str) -> None:
        try:
            await self._report(pb.HostTaskState(id=task.id, state=FAILED, message=message))
        except (CallFailed, PermanentError) as error:
            logger.warning("failure of a task not reported, doing the task again: %s", error, extra={"task": task.id})

    async def _report(self, *states: pb.HostTaskState) -> str:
        """Report the host, with the states of tasks. Returns the position of the report. Raises CallFailed, and
        PermanentError if the plane refuses the report."""
        async with self._reporting:
            return await self._report_now(states)

    async def _report_now(self, states: Sequence[pb.HostTaskState]) -> str:
        devices = await asyncio.to_thread(self._devices)
        boot = self._boot()
        node, namespace, run_id = self._identity
        request = pb.ReportHostRequest(
            node=node,
            namespace=namespace,
            run_id=run_id,
            boot_id=boot.id,
            uptime=_duration(boot.uptime_ms),
            devices=[_message(each) for each in devices],
            tasks=states,
        )
        result = await self._client.command("ReportHost", request)
        if result.outcome not in REPORTED:
            raise PermanentError(f"report: the plane did not accept it: {result.reason}")
        self._log_devices(devices)
        return result.position

    def _log_devices(self, devices: Sequence[FoundDevice]) -> None:
        """Log the DPUs of the host after its first report, and when they have changed."""
        found = tuple(each.pci_address for each in devices)
        if found == self._logged:
            return
        self._logged = found
        if found:
            logger.info("host reported with its DPUs", extra={"pci_addresses": ",".join(found)})
        else:
            logger.warning("host reported without a DPU: its PCI bus has no device with an id of --device-id")


def _duration(span_ms: int) -> Duration:
    found = Duration()
    found.FromMilliseconds(span_ms)
    return found


def _message(device: FoundDevice) -> pb.HostDevice:
    return pb.HostDevice(
        pci_address=device.pci_address,
        device_id=device.device_id,
        serial=device.serial,
        psid=device.psid,
        pf0_name=device.pf0_name,
        pf_count=device.pf_count,
        rshim=device.rshim,
    )
