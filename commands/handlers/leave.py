"""LeaveNodes. Its result waits for the fleet fold, which holds a leave that exceeds the withdrawal budget."""

from __future__ import annotations

import asyncio

from commands import results
from commands.handlers.command_handler import CommandHandler
from commands.queries.fold_reader import FoldReader
from commands.queries.position_waiter import PositionWaiter
from commands.requests import nodes
from commands.rpc.middleware import Call
from eventstore.errors import LogUnavailable
from eventstore.position import from_token
from schemas.api import dpuplane_pb2 as pb


class LeaveHandler:
    """Serves LeaveNodes."""

    def __init__(self, command_handler: CommandHandler, reader: FoldReader, position_waiter: PositionWaiter) -> None:
        self._handler = command_handler
        self._reader = reader
        self._position_waiter = position_waiter

    async def leave(self, request: pb.LeaveNodesRequest, call: Call) -> pb.CommandResult:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        answer = await self._handler.handle(nodes.leave, request, call)
        if answer.outcome not in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED):
            return answer
        ((partition, position),) = from_token(answer.position, self._handler.log_id).offsets.items()
        try:
            await self._position_waiter.wait_until_forwarded(partition, position, timeout_s=deadline_s - loop.time())
        except LogUnavailable as error:
            reason = f"the nodes left their zone, and whether the leave is held is not known yet: {error}"
            return results.unknown(answer.command_id, reason)
        answer = self._reader.with_fleet(answer)
        if answer.outcome == pb.OUTCOME_HELD:
            self._list_others(answer, request)
        return answer

    def _list_others(self, answer: pb.CommandResult, request: pb.LeaveNodesRequest) -> None:
        """Replace the answer's items by one item for each requested name that is not in the answer's hold."""
        kept = self._reader.fleet.held_names.get(answer.hold, {})
        told = {item.name: item for item in answer.items}
        others = [
            told.get(name) or pb.ItemResult(name=name, outcome=pb.OUTCOME_DONE)
            for name in request.names
            if name not in kept
        ]
        del answer.items[:]
        answer.items.extend(others)
