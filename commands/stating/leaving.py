"""Leaves, whose answer waits for fleet: only fleet knows whether one is over the withdrawal budget, and thus held."""

from __future__ import annotations

import asyncio

from commands import answers
from commands.calls.guard import Call
from commands.queries.lookup import Lookup
from commands.queries.reader import Reader
from commands.queries.waiting import Waiting
from commands.requests import nodes
from commands.requests.shapes import Enveloping, Statement
from commands.stating.desk import Desk
from eventstore.errors import LogUnavailable
from eventstore.position import from_token
from projections.fleet.views import hold_of
from schemas.api import dpuplane_pb2 as pb
from schemas.events import NodesLeft


class Leaving:
    """Serves LeaveNodes."""

    def __init__(self, desk: Desk, reader: Reader, waiting: Waiting, lookup: Lookup) -> None:
        self._desk = desk
        self._reader = reader
        self._waiting = waiting
        self._lookup = lookup

    async def leave(self, request: pb.LeaveNodesRequest, call: Call) -> pb.Answer:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        answer = await self._desk.state(self._shape, request, call)
        if answer.outcome != pb.Answer.done:
            return answer
        ((partition, position),) = from_token(answer.position, self._desk.log_id).offsets.items()
        try:
            await self._waiting.forwarded(partition, position, timeout_s=deadline_s - loop.time())
        except LogUnavailable as error:
            reason = f"the nodes left their zone, and whether the leave is held is not known: {error}"
            return answers.unknown(answer.command_id, reason)
        self._mark_held(answer, list(request.names))
        return answer

    def _shape(self, request: pb.LeaveNodesRequest, envelope: Enveloping) -> Statement:
        def event_of(zone: str) -> NodesLeft:
            return nodes.leaving(request, envelope, zone)

        nodes.check_leaving(request)
        if request.zone:
            self._lookup.check_zone_of_leave(event_of(request.zone))
        return nodes.stated(event_of(request.zone or self._lookup.zone_of_leave(event_of)))

    def _mark_held(self, answer: pb.Answer, names: list[str]) -> None:
        """Say which of these nodes a hold keeps in the tables."""
        fleet = self._reader.fleet
        refused = {item.name for item in answer.items}
        rows = ((name, fleet.members.rows.get(name)) for name in names if name not in refused)
        held = [name for name, row in rows if row is not None and row.held]
        if not held:
            return
        answer.outcome = pb.Answer.held
        answer.hold = hold_of(fleet, held[0])
        answer.reason = f"hold {answer.hold} keeps them in the rule tables: the leave is over the budget"
        gone = set(names) - refused - set(held)
        answer.items.extend(pb.ItemAnswer(name=name, outcome=pb.Answer.done) for name in names if name in gone)
