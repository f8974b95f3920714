"""Upgrades of the fold version: of every partition of a topic, and only while every live replica supports the version.

The handler checks all live replicas before it appends to each partition. A halted partition and a replica that lacks
the version are temporary faults: they end the call with an error, which is not an outcome of the command. Every
partition gets its own record, even if it has the version already. A caller who repeats the command under its id
continues where it ended. Partitions with different versions can coexist, because no message between partitions depends
on the version.
"""

from __future__ import annotations

import asyncio

from commands import results
from commands.fold_versions import FoldVersions
from commands.handlers.command_handler import CommandHandler
from commands.requests.validation import InvalidRequest
from commands.rpc.errors import PreconditionFailed
from commands.rpc.middleware import Call
from eventstore.ids import envelope
from eventstore.log import Partition
from eventstore.replicas.replica import Answer, Replica
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.events import FoldVersionUpgraded


class UpgradeHandler:
    """Serves UpgradeFoldVersion."""

    def __init__(self, command_handler: CommandHandler, replica: Replica, versions: FoldVersions) -> None:
        self._handler = command_handler
        self._replica = replica
        self._versions = versions

    async def upgrade_fold_version(self, request: pb.UpgradeFoldVersionRequest, call: Call) -> pb.CommandResult:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        command_id = self._handler.command_id(request.command_id)
        partitions = self._partitions(request)
        for partition in partitions:
            self._check(partition, request.version, appended=0)
        self._handler.bindings.bind(command_id, partitions)
        answers: list[Answer] = []
        for partition in partitions:
            self._check(partition, request.version, appended=len(answers))
            event = FoldVersionUpgraded(envelope(str(partition), call.principal, command_id), request.version)
            answer = await self._handler.submit(partition, "fold", event, max(0.0, deadline_s - loop.time()))
            if not isinstance(answer, Answer):
                return answer
            if answer.outcome.code == "refused":
                return results.to_result(command_id, answer, self._handler.log_id)
            answers.append(answer)
        self._handler.bindings.settle(command_id)
        return results.merged_result(command_id, answers, self._handler.log_id)

    def _partitions(self, request: pb.UpgradeFoldVersionRequest) -> tuple[Partition, ...]:
        topics = sorted(self._replica.supports())
        if request.topic not in topics:
            raise InvalidRequest(f"topic: {quoted(request.topic)} must be one of {', '.join(topics)}")
        if request.version < 1:
            raise InvalidRequest(f"version: {request.version} must be at least 1")
        return self._replica.partitions(request.topic)

    def _check(self, partition: Partition, version: int, appended: int) -> None:
        """Raises PreconditionFailed if this partition cannot be upgraded now, when `appended` others are upgraded
        already."""
        if fault := self._versions.fault(partition, version):
            before = (
                f"; {appended} partitions are upgraded already; repeat the command with the same id" if appended else ""
            )
            raise PreconditionFailed(f"{fault}{before}")
