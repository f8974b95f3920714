"""Tasks of the agent of a host, and what the agent reports of its host: both are kept beside the host's DPUNode.

Steps of DPUs write tasks into an annotation of the DPUNode, and each edit names the revision that it was made from. The
agent's report is the observation of the DPUNode. So both are in the log, and neither the plane nor the agent has to
remember anything over a restart.

A DPUNode of the plane's own source holds both, also for a host that is a node of a Kubernetes cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from projections.resources.kinds import DPU_NODE
from projections.resources.observation import Observation
from projections.resources.state import LOCAL, ObjectId

HOST_TASKS = "dpuplane.io/host-tasks"
"""Annotation of a DPUNode: the tasks for the agent of the host."""
REBOOT, NETWORK = "reboot", "host-network"
INSTALL, RESTART = "install", "restart-dpu"
"""Work on a DPU through its rshim."""
RUNNING, DONE, FAILED = "running", "done", "failed"
STATES = (RUNNING, DONE, FAILED)
TASKS_MAX = 40
"""Maximum number of tasks of a host. The oldest one that has ended is forgotten first, but for the last one of each
network; else that of the oldest step."""
DEVICES_MAX = 16

State: TypeAlias = Literal["running", "done", "failed"]


class FoundDevice(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A DPU that the agent found on the PCI bus of its host."""

    pci_address: str
    device_id: str = ""
    serial: str = ""
    psid: str = ""
    pf0_name: str = ""
    pf_count: int = 1
    rshim: str = ""


class TaskState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The progress of a task. A task without a state has not begun.

    For a task of the network, `boot_id` is the boot of the report, and `was_done` says whether the task was done in any
    boot: a reboot of the host removes the VFs and the bridge, which are then made again.
    """

    id: str
    state: State
    percent: int = 0
    message: str = ""
    boot_id: str = ""
    was_done: bool = False


class HostReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last report of the agent of a host.

    The first report of each run of the agent has another `run_id`, so that it is appended: the fold that decides it has
    every earlier report.
    """

    run_id: str = ""
    boot_id: str = ""
    boot_time_ms: int = 0
    devices: tuple[FoundDevice, ...] = ()
    tasks: tuple[TaskState, ...] = ()

    def state_of(self, task: str) -> TaskState | None:
        """How far a task is; None if it has not begun."""
        return next((each for each in self.tasks if each.id == task), None)

    def device(self, pci_address: str) -> FoundDevice | None:
        """The DPU at a PCI address; None if the host has none there."""
        return next((each for each in self.devices if each.pci_address == pci_address), None)


class HostTask(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task for the agent of a host. `zone` is that of the DPUs whose steps gave it: a freeze of the zone delays it.

    `ids` are those DPUs, each with the offset at which its step began. The task is open only while one of the steps is.

    A reboot ends the boot `boot_id`. An installation writes what the agent of the host, and nobody else, gets at `url`,
    which names the DPU and the identity of the image, and has no secret.
    """

    id: str
    action: str
    zone: str
    pci_address: str = ""
    boot_id: str = ""
    method: str = ""
    methods: Mapping[str, str] = {}
    ids: tuple[str, ...] = ()
    mtu: int = 0
    url: str = ""


class HostTasks(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The tasks of a host in the order in which they were given."""

    tasks: tuple[HostTask, ...] = ()

    def text(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self, order="sorted").decode()

    def with_task(self, task: HostTask, report: HostReport) -> HostTasks:
        """The tasks with a new one, or with another form of a present one."""
        if any(each.id == task.id for each in self.tasks):
            kept = tuple(task if each.id == task.id else each for each in self.tasks)
        else:
            kept = (*self.tasks, task)
        while len(kept) > TASKS_MAX:
            lasting = last_networks(kept)
            ended = [each for each in kept if is_ended(each, report)]
            dropped = next((each for each in ended if each.id not in lasting), [*ended, kept[0]][0])
            kept = tuple(each for each in kept if each is not dropped)
        return HostTasks(kept)

    def without(self, ids: Iterable[str]) -> HostTasks:
        """The tasks without these."""
        dropped = set(ids)
        return HostTasks(tuple(each for each in self.tasks if each.id not in dropped))


_report = msgspec.json.Decoder(HostReport)
_tasks = msgspec.json.Decoder(HostTasks)


def host_object(namespace: str, host: str) -> ObjectId:
    """The DPUNode that holds the tasks and the report of a host."""
    return ObjectId(LOCAL, DPU_NODE, namespace, host)


def tasks_of(annotations: Mapping[str, str]) -> HostTasks:
    """The tasks in the annotations of a DPUNode. A value that somebody has broken counts as none."""
    try:
        return _tasks.decode(annotations.get(HOST_TASKS, "{}"))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return HostTasks()


def report_of(seen: Observation | None) -> HostReport | None:
    """The report in the observation of a DPUNode; None if no agent has reported the host."""
    if seen is None:
        return None
    try:
        found = _report.decode(seen.text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return found if found.boot_id else None


def observation_text(report: HostReport) -> str:
    """The observation of a DPUNode whose agent reports this."""
    fields = msgspec.to_builtins(report) | {"ready": True}
    return msgspec.json.encode(fields, order="sorted").decode()


def open_tasks(tasks: HostTasks, report: HostReport) -> list[HostTask]:
    """The tasks that the agent has to begin or to continue, in the order in which they were given."""
    return [each for each in tasks.tasks if not is_ended(each, report)]


def is_ended(task: HostTask, report: HostReport) -> bool:
    """Whether a task has ended. A reboot has ended once the host is in another boot; a network has to be made again
    then."""
    if task.action == REBOOT and report.boot_id != task.boot_id:
        return True
    found = report.state_of(task.id)
    return found is not None and found.state != RUNNING and not _is_lost(found, report)


def is_lasting(task: HostTask, tasks: HostTasks, report: HostReport) -> bool:
    """Whether a task is needed beyond its step: the last one of the network of a device, once it has been done."""
    found = report.state_of(task.id)
    return found is not None and found.was_done and task.id in last_networks(tasks.tasks)


def last_networks(tasks: Iterable[HostTask]) -> frozenset[str]:
    """The ids of the last task of the network of each device."""
    return frozenset({each.pci_address: each.id for each in tasks if each.action == NETWORK}.values())


def _is_lost(state: TaskState, report: HostReport) -> bool:
    """Whether the host has been rebooted since the network was made, or since it was tried to be made again."""
    return state.was_done and state.boot_id != report.boot_id
