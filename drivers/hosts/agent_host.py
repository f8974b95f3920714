"""Tasks of the agent of a host for the steps of its DPUs: one reboot for all DPUs, the network, and the work on a DPU
through its rshim.

Each call makes one move: it adds a task, or reads its progress. A reboot is done when the host reports another boot
than the one that the task names. A DPU joins a reboot that the agent has not begun. If the agent has begun it, the DPU
waits for its end, and adds another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.hosts.host import DONE, DeviceRequest, NetworkRequest, Progress, RebootRequest
from drivers.hosts.task_box import BoxContent, Tasks
from projections.field_checks import quoted
from projections.resources.host_tasks import (
    FAILED,
    INSTALL,
    NETWORK,
    REBOOT,
    RESTART,
    FoundDevice,
    HostTask,
    HostTasks,
    is_ended,
)
from schemas.resources.dpf.node import REBOOT_ORDER

EDITS_MAX = 100
"""Maximum number of attempts at one edit of the tasks: each is void if another step edits them at the same moment."""


class AgentHost:
    """The agent of one host."""

    def __init__(self, box: Tasks, name: str) -> None:
        self.name = name
        self._box = box

    async def reboot(self, request: RebootRequest) -> Progress:
        """One move towards a reboot for the asking DPU."""
        read = await self._box.read()
        if read is None:
            raise NeedsOperator(
                f"nodeRebootMethod: {request.how.method} cannot reach host {self.name}, from which no "
                "`dpuplane host-agent` has reported; run one, or use external, or none for a DPU without a host"
            )
        known = next((each for each in reversed(read.tasks.tasks) if _is_for(each, REBOOT, request.own)), None)
        if known is not None:
            return await self._followed(read, known)
        last = next((each for each in reversed(read.tasks.tasks) if each.action == REBOOT), None)
        is_open = last is not None and not is_ended(last, read.report)
        if last is not None and is_open and read.report.state_of(last.id) is not None:
            return Progress(False, f"waits for the end of an earlier reboot of host {self.name}")
        task = _joined(last, request) if last is not None and is_open else _reboot_task(read, request)
        await self._box.write(read, read.tasks.with_task(task, read.report))
        return Progress(False, self._waits("reboot it"))

    async def forget_reboot(self, request: RebootRequest) -> None:
        """Remove a reboot that the agent has not begun, unless another DPU needs it."""

        def edited(read: BoxContent) -> HostTasks:
            for task in read.tasks.tasks:
                is_begun = is_ended(task, read.report) or read.report.state_of(task.id) is not None
                if is_begun or not _is_for(task, REBOOT, request.own):
                    continue
                others = tuple(each for each in task.ids if each != request.own)
                rest = replace(task, ids=others)
                return read.tasks.with_task(rest, read.report) if others else read.tasks.without([task.id])
            return read.tasks

        await self._edit(edited)

    async def configure_network(self, request: NetworkRequest) -> Progress:
        """One move towards the network of the host for one DPU. A host without an agent configures its own."""
        read = await self._box.read()
        if read is None:
            return DONE
        device = device_of(read.report.devices, request.serial)
        if device is None:
            return Progress(
                False, f"waits for the DPU with serial {quoted(request.serial)} on the PCI bus of {self.name}"
            )
        known = next((each for each in read.tasks.tasks if _is_for(each, NETWORK, request.own)), None)
        if known is not None:
            return await self._followed(read, known)
        task = HostTask(
            f"{NETWORK}-{read.stored.version}",
            NETWORK,
            request.zone,
            pci_address=device.pci_address,
            ids=(request.own,),
            mtu=request.mtu,
        )
        await self._box.write(read, read.tasks.with_task(task, read.report))
        return Progress(False, self._waits("configure its network"))

    async def devices(self) -> tuple[FoundDevice, ...] | None:
        """The DPUs that the agent has reported; None if no agent has reported."""
        read = await self._box.read()
        return None if read is None else read.report.devices

    async def do_on_device(self, request: DeviceRequest) -> Progress:
        """One move towards an installation or a restart of a DPU through its rshim. An earlier one of the DPU that has
        ended is forgotten: a task with a URL is large."""
        read = await self._box.read()
        if read is None:
            return Progress(False, self._waits("report"))
        known = next((each for each in read.tasks.tasks if _is_for(each, request.action, request.own)), None)
        if known is not None:
            return await self._followed(read, known)
        task = HostTask(
            f"{request.action}-{read.stored.version}",
            request.action,
            request.zone,
            pci_address=request.pci_address,
            ids=(request.own,),
            url=request.url,
        )
        earlier = [
            each.id
            for each in read.tasks.tasks
            if (each.action, each.pci_address) == (task.action, task.pci_address) and is_ended(each, read.report)
        ]
        await self._box.write(read, read.tasks.without(earlier).with_task(task, read.report))
        return Progress(False, self._waits(f"begin {request.action}"))

    async def changed(self) -> None:
        await self._box.changed()

    async def _followed(self, read: BoxContent, task: HostTask) -> Progress:
        """The progress of a task. Raises TaskFailed for a failed one, and removes it first: otherwise the next attempt
        would find it, and fail again."""
        state = read.report.state_of(task.id)
        if not is_ended(task, read.report):
            message = self._waits(f"end task {task.action}" if state is not None else f"begin {task.action}")
            return Progress(False, message, 0 if state is None else state.percent)
        is_other_boot = task.action == REBOOT and read.report.boot_id != task.boot_id
        if state is not None and state.state == FAILED and not is_other_boot:
            await self._edit(lambda read: read.tasks.without([task.id]))
            begin = f"task: {task.action} on " if task.action in (INSTALL, RESTART) else ""
            raise TaskFailed(f"{begin}host {self.name}: {state.message}")
        return DONE

    async def _edit(self, edited: Callable[[BoxContent], HostTasks]) -> None:
        """Edit the tasks until the edit holds. Steps of other DPUs of the host edit them, too."""
        for _ in range(EDITS_MAX):
            read = await self._box.read()
            if read is None or (wanted := edited(read)) == read.tasks:
                return
            await self._box.write(read, wanted)
        raise Unreachable(f"host {self.name}: its tasks were edited {EDITS_MAX} times by other steps")

    def _waits(self, what: str) -> str:
        return f"waits for the agent of host {self.name} to {what}"


def device_of(devices: Sequence[FoundDevice], serial: str) -> FoundDevice | None:
    """The DPU with a serial number. The only DPU of a host is meant if it shows no number, or none is registered."""
    if len(devices) == 1 and not (serial and devices[0].serial):
        return devices[0]
    return next((each for each in devices if serial and each.serial == serial), None)


def _is_for(task: HostTask, action: str, own: str) -> bool:
    return task.action == action and own in task.ids


def _reboot_task(read: BoxContent, request: RebootRequest) -> HostTask:
    return HostTask(
        f"{REBOOT}-{read.stored.version}",
        REBOOT,
        request.zone,
        boot_id=read.report.boot_id,
        method=request.method,
        methods=dict(sorted(request.methods.items())),
        ids=tuple(sorted(request.ids | {request.own})),
    )


def _joined(task: HostTask, request: RebootRequest) -> HostTask:
    """A reboot that is also for another DPU."""
    return replace(
        task,
        method=min(task.method, request.method, key=REBOOT_ORDER.index),
        methods=dict(sorted({**task.methods, **request.methods}.items())),
        ids=tuple(sorted({*task.ids, *request.ids, request.own})),
    )
