"""Queries of the agents of hosts."""

from __future__ import annotations

from commands.queries.fold_reader import FoldReader
from commands.requests.hosts import check_host, namespace_fault
from commands.rpc.error_details import PermissionDenied
from commands.rpc.middleware import Call
from eventstore.log import FLEET, RESOURCES
from projections.resources.host_tasks import (
    HostReport,
    HostTask,
    host_object,
    is_lasting,
    open_tasks,
    report_of,
    tasks_of,
)
from projections.resources.state import LOCAL
from projections.zones.dpus.phases import DELETING
from schemas.api import dpuplane_pb2 as pb


class HostQueries:
    """Answers the queries of the agents of hosts."""

    _reader: FoldReader

    async def get_host_tasks(self, request: pb.GetHostTasksRequest, call: Call) -> pb.HostTasks:
        check_host(request.node, request.namespace)
        await self._reader.wait_for_position(request.min_position, (RESOURCES, FLEET), call)
        number = self._reader.partition_number(LOCAL)
        state, at = self._reader.resources(number), host_object(request.namespace, request.node)
        if fault := namespace_fault(call.principal, request.node, request.namespace, state):
            raise PermissionDenied(fault)
        row, report = state.objects.rows.get(at.key), report_of(state.seen.get(at.key))
        tasks, about = tasks_of(row.annotations if row is not None else {}), report or HostReport()
        found = [
            each
            for each in open_tasks(tasks, about)
            if self._has_open_step(each) or (is_lasting(each, tasks, about) and self._has_dpu(each))
        ]
        return pb.HostTasks(
            tasks=[_message(each, report, is_frozen=self._reader.fleet.is_frozen(each.zone)) for each in found],
            position=self._reader.token(RESOURCES, FLEET, numbers=[number]),
        )

    def _has_open_step(self, task: HostTask) -> bool:
        """Whether a step of a DPU still needs a task: an aborted or skipped step must not reboot its host."""
        rows = self._reader.zones(self._reader.partition_number(task.zone)).dpus.rows
        for each in task.ids:
            name, _, since = each.rpartition("@")
            row = rows.get(name)
            if row is not None and str(row.since) == since and row.step_state != "idle":
                return True
        return False

    def _has_dpu(self, task: HostTask) -> bool:
        """Whether a DPU that needs a task beyond its step is registered, and is not being deleted."""
        rows = self._reader.zones(self._reader.partition_number(task.zone)).dpus.rows
        found = (rows.get(each.rpartition("@")[0]) for each in task.ids)
        return any(row is not None and row.phase != DELETING for row in found)


def _message(task: HostTask, report: HostReport | None, *, is_frozen: bool) -> pb.HostTask:
    state = None if report is None else report.state_of(task.id)
    return pb.HostTask(
        id=task.id,
        action=task.action,
        pci_address=task.pci_address,
        boot_id=task.boot_id,
        method=task.method,
        methods=task.methods,
        mtu=task.mtu,
        frozen=is_frozen,
        url=task.url,
        percent=0 if state is None else state.percent,
        message="" if state is None else state.message,
    )
