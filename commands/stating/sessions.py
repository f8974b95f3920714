"""Opening a session of a daemon: the one command whose record says through which replica it came.

So its repeat through another replica is another record under the same id, and the fold refuses that, as an id misused.
Whoever repeats it because the first answer was lost must hear that answer, so the first record is read and compared.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from msgspec.structs import replace

from commands import answers
from commands.calls.guard import Call
from commands.requests import cliques
from commands.stating.desk import Desk
from eventstore.avro.codec import decode
from eventstore.errors import LogUnavailable, Undecodable
from eventstore.ids import envelope
from eventstore.replicas.replica import Answer, Replica
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Event, SessionOpened


class Sessions:
    """Opens sessions through this replica."""

    def __init__(self, desk: Desk, replica: Replica) -> None:
        self._desk = desk
        self._replica = replica

    async def open(self, request: pb.OpenSessionRequest, call: Call) -> pb.Answer:
        """The answer to the first record of this command, whichever replica it came through."""
        shape = partial(cliques.session, edge=self._replica.name)
        answer = await self._desk.state(shape, request, call)
        first = self._replica.outcome(request.command_id) if answer.outcome == pb.Answer.refused else None
        if first is None:
            return answer
        told = answers.told(request.command_id, first, self._desk.log_id)
        if told == answer:  # it is the first that is refused; to read a record takes a reader of its own
            return answer
        asked = shape(request, lambda subject: envelope(subject, call.principal, request.command_id)).event
        try:
            async with asyncio.timeout(call.timeout_s):
                stated = await self._event_of(first)
        except (LogUnavailable, TimeoutError) as error:
            return answers.unknown(request.command_id, f"the first record of this id cannot be read: {error}")
        is_repeat = isinstance(stated, SessionOpened) and replace(stated, edge=self._replica.name) == asked
        return told if is_repeat else answer

    async def _event_of(self, first: Answer) -> Event | None:
        async with aclosing(self._replica.log.read({first.partition: first.offset})) as batches:
            async for _, records in batches:
                try:
                    return decode(records[0].value) if records[0].offset == first.offset else None
                except Undecodable:
                    return None
        return None
