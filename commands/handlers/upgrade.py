"""Upgrades of the fold version: of every partition of a topic, and only while every live replica supports the version.

A replica that does not support the version halts at the record of the upgrade, so the handler checks all live replicas
before it appends to each partition. A halted partition and a replica that lacks the version are temporary faults: they
end the call with an error, which is not an outcome of the command. Every partition gets its own record, even if it has
the version already. A caller who repeats the command under its id continues where it ended. Partitions with different
versions can coexist, because no message between partitions depends on the version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from commands import results
from commands.handlers.command_handler import CommandHandler
from commands.requests.validation import InvalidRequest
from commands.rpc.errors import PreconditionFailed
from commands.rpc.middleware import Call
from eventstore.errors import TransientError
from eventstore.ids import envelope, internal_envelope
from eventstore.log import Partition
from eventstore.replicas.replica import Answer, Replica
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.events import FoldVersionUpgraded

SupportedVersions = Callable[[], Mapping[str, Mapping[str, Sequence[int]]] | None]
"""The fold versions that each live replica supports, by its name and topic; None while liveness is unknown."""


class UpgradeHandler:
    """Serves UpgradeFoldVersion."""

    def __init__(
        self,
        command_handler: CommandHandler,
        replica: Replica,
        supports: SupportedVersions,
        now_ms: Callable[[], int],
    ) -> None:
        self._handler = command_handler
        self._replica = replica
        self._supports = supports
        self._now_ms = now_ms

    async def upgrade_fold_version(self, request: pb.UpgradeFoldVersionRequest, call: Call) -> pb.CommandResult:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        command_id = self._handler.command_id(request.command_id)
        partitions = self._partitions(request)
        for partition in partitions:
            self._check(partition, request.version, appended=0)
        self._handler.bindings.bind(command_id, partitions)
        told: list[Answer] = []
        for partition in partitions:
            self._check(partition, request.version, appended=len(told))
            event = FoldVersionUpgraded(envelope(str(partition), call.principal, command_id), request.version)
            answer = await self._handler.submit(partition, "fold", event, max(0.0, deadline_s - loop.time()))
            if not isinstance(answer, Answer):
                return answer
            if answer.outcome.code == "refused":
                return results.to_result(command_id, answer, self._handler.log_id)
            told.append(answer)
        self._handler.bindings.settle(command_id)
        return results.merged_result(command_id, told, self._handler.log_id)

    async def ensure(self, partition: Partition, version: int, call: Call) -> None:
        """Upgrade a partition that lacks the rules which a command needs. Raises PreconditionFailed if a live replica
        lacks them, TransientError if the log does not answer in time."""

        def has_rules() -> bool:
            return self._replica.folded(partition).version >= version

        if has_rules():
            return
        self._check(partition, version, appended=0)
        said = internal_envelope("fold", call.principal, self._now_ms())
        event = FoldVersionUpgraded(said, version)
        await self._replica.append_event(partition, b"fold", event, timeout_s=call.timeout_s)
        if not await self._replica.fold_waits.wait_for(has_rules, partition, timeout_s=call.timeout_s):
            raise TransientError(f"{partition} has not folded its upgrade to version {version}; try again")

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
        if fault := self._fault(partition, version):
            before = (
                f"; {appended} partitions are upgraded already; repeat the command with the same id" if appended else ""
            )
            raise PreconditionFailed(f"{fault}{before}")

    def _fault(self, partition: Partition, version: int) -> str:
        """Why this partition cannot be upgraded now; empty if it can."""
        folded = self._replica.folded(partition)
        if folded.halted:
            return f"partition: {partition} is halted on {self._replica.name}: {folded.halted}"
        living = self._supports()
        if living is None:
            return "replicas: this one receives too few beacons to know the live replicas; try again in a few seconds"
        for name, supports in sorted(living.items()):
            if lacks := first_missing_version(supports.get(partition.topic), folded.version, version):
                return f"replica: {name} does not support fold version {lacks} of {partition.topic}; upgrade it first"
        return ""


def first_missing_version(supported: Sequence[int] | None, version: int, wanted: int) -> int:
    """The first version above `version` and up to `wanted` that is not supported. 0 if there is none, or if the replica
    does not fold the topic."""
    if supported is None:
        return 0
    return next((step for step in range(version + 1, wanted + 1) if step not in supported), 0)
