"""JoinNodes and ChangeNodes. The result for a node agent waits until fleet has folded the event, as for leaves.

Only the fleet fold knows whether another node holds an address of the request, or whether the node is in a zone of
another partition. In both cases the result is `refused`, with a reason.

An operator's request can be held only if it moves or changes a node that fleet has. Its result waits for fleet in that
case only. The state of this replica affects only whether the call waits, never its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from commands import results
from commands.handlers.command_handler import CommandHandler, EventBuilder
from commands.queries.fold_reader import FoldReader
from commands.queries.position_waiter import PositionWaiter
from commands.requests import nodes
from commands.rpc.middleware import Call
from eventstore.errors import LogUnavailable
from eventstore.position import from_token
from eventstore.reasons import joined
from projections.actors import is_node_agent
from projections.fleet.membership.contested import faults_of_agent
from schemas.api import dpuplane_pb2 as pb

R = TypeVar("R", pb.JoinNodesRequest, pb.ChangeNodesRequest)


class JoinHandler:
    """Serves JoinNodes and ChangeNodes."""

    def __init__(self, command_handler: CommandHandler, reader: FoldReader, position_waiter: PositionWaiter) -> None:
        self._handler = command_handler
        self._reader = reader
        self._position_waiter = position_waiter

    async def join(self, request: pb.JoinNodesRequest, call: Call) -> pb.CommandResult:
        names = [*request.columns.names, *(node.name for node in request.nodes)]
        if not is_node_agent(call.principal):
            return await self._for_operator(nodes.join, request, names, call)
        return await self._for_node_agent(nodes.join, request, names, call)

    async def change(self, request: pb.ChangeNodesRequest, call: Call) -> pb.CommandResult:
        names = [node.name for node in request.nodes]
        if not is_node_agent(call.principal):
            return await self._for_operator(nodes.change, request, names, call)
        return await self._for_node_agent(nodes.change, request, names, call)

    async def _for_operator(
        self, build_event: EventBuilder[R], request: R, names: Sequence[str], call: Call
    ) -> pb.CommandResult:
        deadline_s = asyncio.get_running_loop().time() + call.timeout_s
        answer = await self._handler.handle(build_event, request, call)
        if answer.outcome != pb.OUTCOME_DONE or not self._reader.fleet.members.rows.has_any(names):
            return answer
        reason = "the zone accepted it, and whether a hold keeps it out of the rule tables is not known yet"
        return await self._await_fleet(answer, deadline_s, reason)

    async def _for_node_agent(
        self, build_event: EventBuilder[R], request: R, names: Iterable[str], call: Call
    ) -> pb.CommandResult:
        deadline_s = asyncio.get_running_loop().time() + call.timeout_s
        answer = await self._handler.handle(build_event, request, call)
        if answer.outcome not in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED):
            return answer
        reason = "the zone accepted it, and whether fleet applies it is not known yet"
        answer = await self._await_fleet(answer, deadline_s, reason)
        if answer.outcome == pb.OUTCOME_UNCHANGED:
            faults = [fault for name in names for fault in faults_of_agent(self._reader.fleet, name, request.zone)]
            if faults:
                fault = joined(faults)
                results.set_reason(answer, str(fault), fault.reason, fault.fields)
        return answer

    async def _await_fleet(self, answer: pb.CommandResult, deadline_s: float, unknown: str) -> pb.CommandResult:
        """The result of the zone, corrected by the fleet fold. If fleet does not receive the event in time, the result
        is unknown, with `unknown` as the beginning of its reason."""
        ((partition, position),) = from_token(answer.position, self._handler.log_id).offsets.items()
        left_s = deadline_s - asyncio.get_running_loop().time()
        try:
            await self._position_waiter.wait_until_forwarded(partition, position, timeout_s=left_s)
        except LogUnavailable as error:
            return results.unknown(answer.command_id, f"{unknown}: {error}")
        return self._reader.with_fleet(answer)
