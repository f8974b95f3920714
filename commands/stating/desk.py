"""Where a request becomes a record and a record becomes an answer.

A caller is told one of five things: done, waiting, held, refused, or unknown. Unknown is an answer, not an error: the
record may be in the log, now or later, and the command's id makes that definite by itself. So a log that does not
answer in time ends no call with an exception.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from commands import answers
from commands.calls.guard import Call
from commands.requests.shapes import BadRequest, Enveloping, Statement, Unplaced
from eventstore.errors import AppendRefused, AppendUnknown, LogUnavailable
from eventstore.folding.ledger import AHEAD_MS
from eventstore.ids import envelope, issued_at_ms, uuid7
from eventstore.log import Partition
from eventstore.replicas.replica import Answer, Replica
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope, Event

R = TypeVar("R")
Shape: TypeAlias = Callable[[R, Enveloping], Statement]


class Desk:
    """Checks shapes, appends, answers. `unknown` counts the commands whose outcome could not be told."""

    def __init__(self, replica: Replica, now_ms: Callable[[], int], rng: random.Random) -> None:
        self._replica = replica
        self._now_ms = now_ms
        self._rng = rng
        self.unknown = 0

    @property
    def log_id(self) -> str:
        return self._replica.log_id

    def command_id(self, given: str) -> str:
        """A caller's id, or a new one. Raises PermanentError if it is no UUIDv7, or one of the future."""
        if not given:
            return uuid7(self._now_ms(), self._rng)
        ahead_ms = issued_at_ms(given) - self._now_ms()
        if ahead_ms > AHEAD_MS:
            raise BadRequest(f"command_id: {given} is {ahead_ms} ms ahead of this clock, and {AHEAD_MS} ms is the most")
        return given

    async def state(self, shape: Shape[R], request: R, call: Call) -> pb.Answer:
        """One command from its shape to its answer. Raises PermanentError for a bad shape; nothing is appended then."""
        command_id = self.command_id(request.command_id)  # type: ignore[attr-defined]

        def enveloping(subject: str) -> Envelope:
            return envelope(subject, call.principal, command_id)

        try:
            statement = shape(request, enveloping)
        except Unplaced as error:
            return answers.refused(command_id, str(error))
        partition = self._replica.partition_for(statement.topic, statement.key)
        if request.command_id and (used := self._used_elsewhere(command_id, partition)):  # type: ignore[attr-defined]
            return answers.refused(command_id, used)
        answer = await self.submit(partition, statement.key, statement.event, call.timeout_s)
        return answers.told(command_id, answer, self.log_id) if isinstance(answer, Answer) else answer

    def _used_elsewhere(self, command_id: str, partition: Partition) -> str:
        """What is wrong with an id that another partition remembers and this one does not; nothing if it is new.

        A fold sees one partition only. This replica sees them all, though perhaps not yet the latest of each.
        """
        known = self._replica.outcome(command_id)
        if known is None or command_id in self._replica.folded(partition).ledger.entries:
            return ""
        return f"command id: {command_id} was used for another command, in {known.partition}"

    async def submit(self, partition: Partition, key: str, event: Event, timeout_s: float) -> Answer | pb.Answer:
        """Append, and what the fold decided; an answer without a position if that is not known."""
        command_id = event.envelope.command_id
        try:
            return await self._replica.submit(partition, key.encode(), event, timeout_s=timeout_s)
        except AppendRefused as error:
            return answers.refused(command_id, str(error))
        except (AppendUnknown, LogUnavailable) as error:
            self.unknown += 1
            return answers.unknown(command_id, str(error))
