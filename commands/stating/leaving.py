"""Leaves, whose answer waits for fleet: only fleet knows whether one is over the withdrawal budget, and thus held."""

from __future__ import annotations

import asyncio

from commands import answers
from commands.calls.guard import Call
from commands.queries.reader import Reader
from commands.queries.waiting import Waiting
from commands.requests import nodes
from commands.stating.desk import Desk
from eventstore.errors import LogUnavailable
from eventstore.position import from_token
from projections.fleet.views import hold_of
from schemas.api import dpuplane_pb2 as pb


class Leaving:
    """Serves LeaveNodes."""

    def __init__(self, desk: Desk, reader: Reader, waiting: Waiting) -> None:
        self._desk = desk
        self._reader = reader
        self._waiting = waiting

    async def leave(self, request: pb.LeaveNodesRequest, call: Call) -> pb.Answer:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        answer = await self._desk.state(nodes.leave, request, call)
        if answer.outcome not in (pb.Answer.done, pb.Answer.unchanged):
            return answer
        ((partition, position),) = from_token(answer.position, self._desk.log_id).offsets.items()
        try:
            await self._waiting.forwarded(partition, position, timeout_s=deadline_s - loop.time())
        except LogUnavailable as error:
            reason = f"the nodes left their zone, and whether the leave is held is not known: {error}"
            return answers.unknown(answer.command_id, reason)
        verdict = self._reader.verdict(answer.command_id)
        if verdict is None or verdict.code == "held":
            self._mark_held(answer, request)
        return answers.found(answer, verdict)

    def _mark_held(self, answer: pb.Answer, request: pb.LeaveNodesRequest) -> None:
        """Say which of these nodes a hold keeps in the tables; by an earlier leave, if this one changed nothing."""
        fleet = self._reader.fleet
        told = {item.name: item for item in answer.items}
        refused = {name for name, item in told.items() if item.outcome == pb.Answer.refused}
        rows = ((name, fleet.members.rows.get(name)) for name in request.names if name not in refused)
        held = [name for name, row in rows if row is not None and row.held and row.zone == request.zone]
        if not held:
            return
        kept = set(held)
        others = [
            told.get(name) or pb.ItemAnswer(name=name, outcome=answer.outcome)
            for name in request.names
            if name not in kept
        ]
        answer.outcome = pb.Answer.held
        answer.hold = hold_of(fleet, held[0])
        answer.reason = f"hold {answer.hold} keeps what was in the rule tables: the change is over the budget"
        del answer.items[:]
        answer.items.extend(others)
