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
from projections.fleet.views import hold_of, is_rejected
from projections.names import shown
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
            self._mark_kept(answer, request)
        return answers.found(answer, verdict)

    def _mark_kept(self, answer: pb.Answer, request: pb.LeaveNodesRequest) -> None:
        """Say which of these nodes stay in the tables: an open hold keeps them, or an earlier leave was rejected."""
        fleet = self._reader.fleet
        refused = {item.name for item in answer.items if item.outcome == pb.Answer.refused}
        left = [name for name in request.names if name not in refused and self._has_left(name, request.zone)]
        holds = {name: hold_of(fleet, name) for name in left}
        self._mark_rejected(answer, {name: hold for name, hold in holds.items() if is_rejected(fleet, hold)})
        self._mark_held(answer, request, {name: hold for name, hold in holds.items() if not is_rejected(fleet, hold)})

    def _has_left(self, name: str, zone: str) -> bool:
        member = self._reader.fleet.members.rows.get(name)
        return member is not None and member.held and member.zone == zone

    def _mark_rejected(self, answer: pb.Answer, holds: dict[str, int]) -> None:
        """Another leave of a node whose leave was rejected changes nothing: the node has left its zone already."""
        again = [item for item in answer.items if item.name in holds and item.outcome == pb.Answer.unchanged]
        for item in again:
            said = f"its leave was rejected with hold {holds[item.name]}, and the rule tables keep it"
            item.reason = f"{said}; to take it out, join it and let it leave anew"
        if again and answer.outcome == pb.Answer.unchanged:
            answer.reason = again[0].reason

    def _mark_held(self, answer: pb.Answer, request: pb.LeaveNodesRequest, holds: dict[str, int]) -> None:
        if not holds:
            return
        told = {item.name: item for item in answer.items}
        others = [
            told.get(name) or pb.ItemAnswer(name=name, outcome=answer.outcome)
            for name in request.names
            if name not in holds
        ]
        hold = answer.hold = next(iter(holds.values()))
        if answer.outcome == pb.Answer.unchanged:
            what, them = (
                (f"node {shown(next(iter(holds)))} has", "it") if len(holds) == 1 else ("the nodes have", "them")
            )
            answer.reason = f"{what} left zone {request.zone} already, and hold {hold} keeps {them} in the rule tables"
        else:
            answer.reason = f"hold {hold} keeps what was in the rule tables: the change is over the budget"
        answer.outcome = pb.Answer.held
        del answer.items[:]
        answer.items.extend(others)
