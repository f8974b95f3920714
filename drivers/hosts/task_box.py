"""The tasks of the agent of a host, as the steps of DPUs give them, and the agent's report.

Both are beside a DPUNode of the plane's own source (projections/resources/host_tasks.py). An edit names the version
that it was made from: if another step has edited the tasks meanwhile, nothing is written, and the caller reads again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from drivers.hosts.objects import ObjectStore, StoredObject
from eventstore.log import RESOURCES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.host_tasks import HOST_TASKS, HostReport, HostTasks, host_object, report_of, tasks_of
from projections.resources.state import LOCAL, ObjectId


class BoxContent(NamedTuple):
    """The tasks of a host and the last report of its agent, as of one read. `stored` is the DPUNode."""

    tasks: HostTasks
    report: HostReport
    stored: StoredObject


class Tasks(Protocol):
    """The tasks of one host. Any call may raise Unreachable."""

    async def read(self) -> BoxContent | None: ...

    async def write(self, read: BoxContent, tasks: HostTasks) -> None: ...

    async def changed(self) -> None: ...


class TaskBox:
    """The tasks of one host."""

    def __init__(self, replica: Replica, store: ObjectStore, namespace: str, host: str) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._store = store
        self._at: ObjectId = host_object(namespace, host)

    async def read(self) -> BoxContent | None:
        """The tasks and the report; None if no agent of this host has reported."""
        stored = await self._store.get(self._at)
        report = report_of(self._states.resources(LOCAL).seen.get(self._at.key))
        if stored is None or report is None:
            return None
        return BoxContent(tasks_of(stored.annotations), report, stored)

    async def write(self, read: BoxContent, tasks: HostTasks) -> None:
        """Replace the tasks of a read."""
        annotations = {**read.stored.annotations, HOST_TASKS: tasks.text()}
        await self._store.put(read.stored._replace(annotations=annotations))

    async def changed(self) -> None:
        """Return when an object or a report may have changed."""
        await self._replica.fold_waits.changed(self._replica.partition_for(RESOURCES, LOCAL))
