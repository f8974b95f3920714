"""Joins and changes of nodes. Those of a node's agent are answered after fleet folded them, as leaves are.

Only fleet knows whether another node holds an address that the agent stated, or whether the node lives in a zone of
another partition. The caller hears `refused` then, with what became of the statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from commands import answers
from commands.calls.guard import Call
from commands.queries.reader import Reader
from commands.queries.waiting import Waiting
from commands.requests import nodes
from commands.stating.desk import Desk, Shape
from eventstore.errors import LogUnavailable
from eventstore.position import from_token
from projections.actors import is_node_agent
from projections.fleet.views import withheld_addresses
from projections.names import shown
from schemas.api import dpuplane_pb2 as pb

R = TypeVar("R", pb.JoinNodesRequest, pb.ChangeNodesRequest)


class Joining:
    """Serves JoinNodes and ChangeNodes."""

    def __init__(self, desk: Desk, reader: Reader, waiting: Waiting) -> None:
        self._desk = desk
        self._reader = reader
        self._waiting = waiting

    async def join(self, request: pb.JoinNodesRequest, call: Call) -> pb.Answer:
        if not is_node_agent(call.principal):
            return await self._desk.state(nodes.join, request, call)
        names = [*request.columns.names, *(node.name for node in request.nodes)]
        return await self._of_agent(nodes.join, request, names, call)

    async def change(self, request: pb.ChangeNodesRequest, call: Call) -> pb.Answer:
        if not is_node_agent(call.principal):
            return await self._desk.state(nodes.change, request, call)
        return await self._of_agent(nodes.change, request, [node.name for node in request.nodes], call)

    async def _of_agent(self, shape: Shape[R], request: R, names: Iterable[str], call: Call) -> pb.Answer:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timeout_s
        answer = await self._desk.state(shape, request, call)
        if answer.outcome not in (pb.Answer.done, pb.Answer.unchanged):
            return answer
        ((partition, position),) = from_token(answer.position, self._desk.log_id).offsets.items()
        try:
            await self._waiting.forwarded(partition, position, timeout_s=deadline_s - loop.time())
        except LogUnavailable as error:
            reason = f"the zone took the statement, and whether fleet lets it take effect is not known: {error}"
            return answers.unknown(answer.command_id, reason)
        faults = [fault for name in names for fault in self._faults(name, request.zone)]
        if faults:
            answer.outcome = pb.Answer.refused
            answer.reason = "; ".join(faults)
        return answer

    def _faults(self, name: str, zone: str) -> Iterable[str]:
        """What of a node's statement fleet did not let take effect."""
        member = self._reader.fleet.members.rows.get(name)
        if member is not None and not member.held and member.zone != zone:
            return (
                f"node: {shown(name)} is in zone {shown(member.zone)}, and a node agent moves no node; an operator"
                f" moves it, or takes it out with 'dpuplane nodes leave {name}'",
            )
        return withheld_addresses(self._reader.fleet, name)
