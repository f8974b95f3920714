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
from projections.fleet.contested import faults_of_agent
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
        if answer.outcome == pb.Answer.unchanged:
            faults = (fault for name in names for fault in faults_of_agent(self._reader.fleet, name, request.zone))
            answer.reason = "; ".join(faults) or answer.reason
        return answers.found(answer, self._reader.verdict(answer.command_id))
