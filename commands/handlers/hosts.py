"""ReportHost: the agent of a host states its boot, its DPUs, and how far its tasks are.

The DPUNode of the host and the DPUDevices of its DPUs are made if they do not exist; present ones stay as their users
have them. The report itself becomes the observation of the DPUNode. A report that changes nothing is not appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from commands import results
from commands.handlers.command_handler import CommandHandler
from commands.requests import hosts
from commands.requests.resources import CheckedObject, applied
from commands.requests.validation import require
from commands.rpc.error_details import PermissionDenied
from commands.rpc.middleware import Call
from eventstore.folding.fold import UNCHANGED
from eventstore.ids import comparison_id, envelope
from eventstore.log import RESOURCES
from eventstore.replicas.replica import Answer, Replica
from projections.fold_states import FoldStates
from projections.resources.host_tasks import host_object, observation_text, report_of, tasks_of
from projections.resources.kinds import DPU_NODE
from projections.resources.state import LOCAL
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope, ResourcesObserved


class HostHandler:
    """Serves ReportHost."""

    def __init__(self, command_handler: CommandHandler, replica: Replica, now_ms: Callable[[], int]) -> None:
        self._handler = command_handler
        self._replica = replica
        self._states = FoldStates(replica)
        self._partition = replica.partition_for(RESOURCES, LOCAL)
        self._now_ms = now_ms

    async def report(self, request: pb.ReportHostRequest, call: Call) -> pb.CommandResult:
        report = hosts.checked_report(request, self._now_ms())
        state = self._states.resources(LOCAL)
        if fault := hosts.namespace_fault(call.principal, request.node, request.namespace, state):
            raise PermissionDenied(fault)
        made = [
            hosts.node_object(request.node, request.namespace),
            *hosts.device_objects(request.node, request.namespace, report),
        ]
        require(next((fault for each in made for fault in each.faults), None))
        command_id = self._handler.command_id(request.command_id)
        if request.command_id:
            self._handler.bindings.bind(command_id, (self._partition,))
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        missing = self._missing(made)
        if missing:
            own_id = comparison_id(command_id, 1)
            event = applied(missing, lambda subject: envelope(subject, call.principal, own_id)).event
            answer = await self._handler.submit(self._partition, LOCAL, event, call.timeout_s)
            if not isinstance(answer, Answer):
                answer.command_id = command_id
                return answer
        at = host_object(request.namespace, request.node)
        row = self._states.resources(LOCAL).objects.rows.get(at.key)
        known = report_of(self._states.resources(LOCAL).seen.get(at.key))
        tasks = tasks_of(row.annotations if row is not None else {})
        report = hosts.merged(report, known, tasks)
        if report == known:
            unchanged = Answer(UNCHANGED, self._partition, self._replica.position(self._partition) - 1)
            return results.to_result(command_id, unchanged, self._handler.log_id)
        event = self._observed(
            envelope("/".join(at[1:]), call.principal, command_id), request, observation_text(report)
        )
        answer = await self._handler.submit(self._partition, LOCAL, event, max(0.0, deadline_s - loop.time()))
        if not isinstance(answer, Answer):
            return answer
        if request.command_id:
            self._handler.bindings.settle(command_id)
        return results.to_result(command_id, answer, self._handler.log_id)

    def _missing(self, made: list[CheckedObject]) -> list[CheckedObject]:
        """The objects that do not exist. Each occurs once: cards may share a serial number."""
        rows = self._states.resources(LOCAL).objects.rows
        return [*{each.at.key: each for each in made if each.at.key not in rows}.values()]

    def _observed(self, envelope: Envelope, request: pb.ReportHostRequest, text: str) -> ResourcesObserved:
        return ResourcesObserved(
            envelope,
            source=LOCAL,
            kinds=[DPU_NODE],
            namespaces=[request.namespace],
            names=[request.node],
            uids=[],
            observations=[text],
        )
