"""JoinNodesStream: many requests of one call in flight at once, one summary.

Reading the stream pauses at the maximum of concurrent requests, so gRPC's flow control stops the sender. Over the rate
limit, requests wait for a token. A request in error (invalid, or with an id in use) is listed in the summary and does
not end the stream: no event was appended, so it has no outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from commands import results
from commands.handlers.command_handler import CommandHandler
from commands.requests import nodes
from commands.rpc.authentication import Unauthenticated
from commands.rpc.error_details import fault_of, status_of
from commands.rpc.limits import Admission
from commands.rpc.middleware import Call, UndecodableRequest
from eventstore.errors import PermanentError
from eventstore.log import Partition
from eventstore.position import from_token
from schemas.api import dpuplane_pb2 as pb

_MAX_REFUSALS = 100
_MAX_ERRORS = 100
_MAX_ITEMS_KEPT = 1_000
"""Maximum total number of items in all refusals of a summary. One refusal alone may have this many items. By default, a
gRPC client accepts a summary of at most 4 MiB.
"""

_ID_CHARACTERS = 36
"""Maximum length of an id in the summary. A longer text is not an id, and may be as long as a request."""


class _SummaryBuilder:
    """Builds the summary of a stream."""

    def __init__(self) -> None:
        self.summary = pb.JoinSummary()
        self._offsets: dict[Partition, int] = {}
        self._items_left = _MAX_ITEMS_KEPT

    def add(self, count: int, answer: pb.CommandResult, log_id: str) -> None:
        summary = self.summary
        summary.requests += 1
        summary.nodes += count
        refused = sum(item.outcome == pb.OUTCOME_REFUSED for item in answer.items)
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            summary.unknown += count
        elif answer.outcome == pb.OUTCOME_REFUSED:
            done = sum(item.outcome != pb.OUTCOME_REFUSED for item in answer.items)
            summary.refused += count - done
            summary.done += done
        else:
            summary.refused += refused
            summary.done += count - refused
        is_bad = refused or answer.outcome in (pb.OUTCOME_UNKNOWN, pb.OUTCOME_REFUSED)
        if is_bad and len(summary.refusals) < _MAX_REFUSALS:
            self._keep(answer)
        if answer.position:
            for partition, offset in from_token(answer.position, log_id).offsets.items():
                self._offsets[partition] = max(self._offsets.get(partition, 0), offset)

    def fail(self, count: int, number: int, command_id: str, error: Exception) -> None:
        """Count a request for which no event was appended."""
        summary = self.summary
        summary.requests += 1
        summary.nodes += count
        summary.not_appended += count
        if len(summary.errors) < _MAX_ERRORS:
            fault = fault_of(error)
            summary.errors.add(
                request=number,
                command_id=command_id[:_ID_CHARACTERS],
                status=status_of(error).name,
                reason=fault,
                reason_code=fault.reason,
                reason_fields=fault.fields,
            )

    def _keep(self, answer: pb.CommandResult) -> None:
        """Add the answer to the summary, with as many of its items as fit."""
        kept = self.summary.refusals.add()
        kept.CopyFrom(answer)
        kept.command_id = answer.command_id[:_ID_CHARACTERS]
        del kept.items[self._items_left :]
        self._items_left -= len(kept.items)

    def finished(self, log_id: str) -> pb.JoinSummary:
        self.summary.position = results.token(log_id, self._offsets)
        return self.summary


class JoinStreamHandler:
    """Serves JoinNodesStream."""

    def __init__(self, command_handler: CommandHandler, admission: Admission, in_flight_max: int) -> None:
        self._handler = command_handler
        self._admission = admission
        self._in_flight_max = in_flight_max

    async def join(
        self, requests: AsyncIterator[pb.JoinNodesRequest | UndecodableRequest], call: Call
    ) -> pb.JoinSummary:
        summary = _SummaryBuilder()
        places = asyncio.Semaphore(self._in_flight_max)
        ended: Unauthenticated | None = None
        async with asyncio.TaskGroup() as tasks:
            try:
                number = 0
                async for request in requests:
                    await places.acquire()
                    tasks.create_task(self._one(number, request, call, summary, places))
                    number += 1
            except Unauthenticated as error:
                ended = error
        if ended is not None:
            raise ended
        return summary.finished(self._handler.log_id)

    async def _one(
        self,
        number: int,
        request: pb.JoinNodesRequest | UndecodableRequest,
        call: Call,
        summary: _SummaryBuilder,
        places: asyncio.Semaphore,
    ) -> None:
        try:
            if isinstance(request, UndecodableRequest):
                summary.fail(0, number, "", PermanentError(request.fault))
                return
            count = max(len(request.nodes), len(request.columns.names))
            await self._admission.wait_for_token(call.principal)
            try:
                answer = await self._handler.handle(nodes.join, request, call)
            except PermanentError as error:
                summary.fail(count, number, request.command_id, error)
            else:
                summary.add(count, answer, self._handler.log_id)
        finally:
            places.release()
