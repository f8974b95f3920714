"""Steps of a DPU whose host has an agent with a rshim: the installer, the tasks, and what the agent does with them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from deploy.host_agent.actions import Action, ActionFailed
from deploy.host_agent.image_source import Stream
from deploy.host_agent.install import InstallAction
from deploy.host_agent.install_progress import ENDED, INSTALLING
from deploy.host_agent.restart import RestartAction
from deploy.host_agent.timed_rshim import RshimTiming
from drivers.hosts.agent_host import AgentHost
from drivers.hosts.objects import StoredObject
from drivers.hosts.task_box import BoxContent
from drivers.images.bfb import made_bfb
from drivers.provisioning.attempts import CallTiming
from drivers.provisioning.rshim import RshimInstaller
from projections.resources.host_tasks import (
    INSTALL,
    RESTART,
    FoundDevice,
    HostReport,
    HostTask,
    HostTasks,
    TaskState,
    host_object,
    open_tasks,
)
from schemas.api import dpuplane_pb2 as pb
from tests.support.attempted_steps import AttemptedSteps
from tests.support.rshim_dpu import RshimDpu

FULL = "the log of its rshim is full"
SERIAL, SLOT = "MT1", "0000:03:00"
BFB = made_bfb([(1, b"image" * 1_000)]) + b"A=1\n"
FAST = RshimTiming(call_s=20.0, install_s=60.0, restart_s=60.0, settle_s=15.0, gone_s=1.0, poll_s=0.01)


class MemoryTasks:
    """The tasks of one host and the report of its agent, in memory."""

    def __init__(self) -> None:
        device = FoundDevice(f"{SLOT}.0", serial=SERIAL, rshim="rshim0")
        self.report = HostReport("run-1", "boot-1", 1, (device,))
        self.tasks = HostTasks()
        self.version = 0
        self._changed = asyncio.Event()

    async def read(self) -> BoxContent | None:
        stored = StoredObject(host_object("dpf", "host-1"), "u", str(self.version), {}, {}, {})
        return BoxContent(self.tasks, self.report, stored)

    async def write(self, read: BoxContent, tasks: HostTasks) -> None:
        if read.stored.version == str(self.version):
            self.tasks = tasks
            self._note()

    async def changed(self) -> None:
        await self._changed.wait()

    def state(self, state: TaskState) -> None:
        """State how far a task is, as the agent does."""
        others = tuple(each for each in self.report.tasks if each.id != state.id)
        self.report = HostReport("run-1", "boot-1", 1, self.report.devices, (*others, state))
        self._note()

    def _note(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


class RshimSteps(AttemptedSteps):
    """The steps of one DPU. The agent works on the tasks while `working` lasts."""

    def __init__(self, dev: Path) -> None:
        super().__init__(SERIAL, "rshim:dpf/host-1", "image/1")
        self.timing = CallTiming(call_s=20.0, poll_s=0.01, poll_max_s=0.02)
        self.box = MemoryTasks()
        self.device = RshimDpu(dev / "rshim0", SLOT)
        self.device.proceeds = self._is_seen
        self.records = True
        """Whether the plane records reports that are not required."""
        self.told: dict[str, TaskState] = {}
        """The last report on each task, recorded or not."""
        self._is_working = False
        self.proceeds_unseen = False
        """Whether an installation proceeds while no agent works."""
        self.content = BFB
        self.actions: Mapping[str, Action] = {
            INSTALL: InstallAction(dev, self.opened, FAST, held_bytes=1_000),
            RESTART: RestartAction(dev, FAST),
        }
        self.on_chunk: Callable[[int], None] = lambda number: None
        self.begun = 0
        """Number of tasks that agents began."""

    def installer(self) -> RshimInstaller:
        async def url_of(dpu: str, image: str) -> str:
            return f"https://images/installations/{dpu}?image={image}"

        return RshimInstaller(lambda namespace, host: AgentHost(self.box, host), url_of)

    @asynccontextmanager
    async def opened(self, url: str) -> AsyncIterator[Stream]:
        """The image, in pieces."""

        async def chunks() -> AsyncIterator[bytes]:
            size = 1_000
            for number, begin in enumerate(range(0, len(self.content), size)):
                self.on_chunk(number)
                yield self.content[begin : begin + size]

        yield Stream(len(BFB), hashlib.sha256(BFB).digest(), chunks())

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The agent, which ends with the block as if it were killed."""
        agent = asyncio.ensure_future(self.work())
        self._is_working = True
        try:
            yield
        finally:
            self._is_working = False
            agent.cancel()
            with suppress(asyncio.CancelledError):
                await agent
            await self._taken()

    async def _taken(self) -> None:
        """Wait until the device has taken what was written: a real one resets before a write returns."""
        if not self.device.folder.exists():
            return
        rounds = self.device.rounds
        async with asyncio.timeout(60.0):
            while self.device.rounds < rounds + 2:
                await asyncio.sleep(0.005)

    def _is_seen(self, event: str) -> bool:
        """Whether the agent has seen the installer of the image, or its end before the DPU boots. The end may not be in
        a full log."""
        tasks = {each.id for each in open_tasks(self.box.tasks, self.box.report) if each.action == INSTALL}
        states = [*filter(None, map(self.told.get, tasks))]
        if not tasks or (not self._is_working and self.proceeds_unseen):
            return True
        wanted = ENDED if event == "boot" else INSTALLING
        return self._is_working and any(state.percent >= wanted or FULL in state.message for state in states)

    async def work(self) -> None:
        """Do open tasks, one by one, until cancelled."""
        while True:
            for task in open_tasks(self.box.tasks, self.box.report):
                await self._do(task)
            await asyncio.sleep(0.01)

    async def _do(self, task: HostTask) -> None:
        async def progress(percent: int, message: str, *, is_required: bool = False) -> bool:
            told = self.told[task.id] = TaskState(task.id, "running", percent, message)
            if self.records or is_required:
                self.box.state(told)
            return self.records or is_required

        self.begun += 1
        known = self.box.report.state_of(task.id) or TaskState(task.id, "running")
        given = pb.HostTask(
            id=task.id,
            action=task.action,
            pci_address=task.pci_address,
            url=task.url,
            percent=known.percent,
            message=known.message,
        )
        self.box.state(known)
        try:
            await self.actions[task.action].run(given, progress)
        except ActionFailed as error:
            self.box.state(TaskState(task.id, "failed", 0, str(error)))
        else:
            self.box.state(TaskState(task.id, "done", 100))
