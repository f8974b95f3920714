"""Handles a command: validates the request, appends the event, and returns the result that the fold decided.

A result has one of six outcomes: done, waiting, held, unchanged, refused or unknown. A fold decides the first five
after the event was appended, so every server returns the same outcome for one command id. A fault of the call itself
(an invalid request, an id in use, a clock that is ahead) is an error of the call instead.

Unknown is a result and not an error: the event may be in the log, now or later, and the command id decides which. So a
log that does not respond in time never ends a call with an exception.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from commands import results
from commands.handlers.command_ids import CommandIdBindings
from commands.requests.validation import EnvelopeFactory, NewEvent
from commands.rpc.errors import PreconditionFailed
from commands.rpc.middleware import Call
from eventstore.errors import AppendUnknown, LogUnavailable
from eventstore.folding.ledger import AHEAD_MS
from eventstore.ids import envelope, issued_at_ms, uuid7
from eventstore.log import Partition
from eventstore.reasons import Fault, Reason
from eventstore.replicas.replica import Answer, Replica
from schemas.api import dpuplane_pb2 as pb
from schemas.events import Envelope, Event

R = TypeVar("R")
EventBuilder: TypeAlias = Callable[[R, EnvelopeFactory], NewEvent]


class CommandHandler:
    """Handles commands of one partition each. `unknown` counts the results with an unknown outcome."""

    def __init__(self, replica: Replica, now_ms: Callable[[], int], rng: random.Random) -> None:
        self._replica = replica
        self._now_ms = now_ms
        self._rng = rng
        self.bindings = CommandIdBindings(replica, now_ms)
        self.unknown = 0

    @property
    def log_id(self) -> str:
        return self._replica.log_id

    def command_id(self, given: str) -> str:
        """The id that the caller gave, or a new one. Raises InvalidCommandId if it is not a UUIDv7, and
        PreconditionFailed if its time is in the future.

        A time in the future means that the clock of the server or of the caller is wrong, so this is an error of the
        call and no outcome. The folds would refuse such a command for good if it were appended. A fold that remembers
        an id with a future time also folds joins one by one, not in runs, until that time.
        """
        if not given:
            return uuid7(self._now_ms(), self._rng)
        ahead_ms = issued_at_ms(given) - self._now_ms()
        if ahead_ms > AHEAD_MS:
            reason = (
                f"command_id: {given} is {ahead_ms} ms ahead of the clock of {self._replica.name}, over the limit of"
                f" {AHEAD_MS} ms; nothing was appended. Synchronize both clocks"
            )
            raise PreconditionFailed(Fault(reason, Reason.COMMAND_FROM_FUTURE, ahead_ms=ahead_ms))
        return given

    async def handle(self, build_event: EventBuilder[R], request: R, call: Call) -> pb.CommandResult:
        """Handle one command: build the event, append it, return the result. Raises PermanentError, before anything is
        appended, for an invalid request, an id in use for another partition, and a clock that is ahead.
        """
        command_id = self.command_id(request.command_id)  # type: ignore[attr-defined]

        def envelope_factory(subject: str) -> Envelope:
            return envelope(subject, call.principal, command_id)

        new_event = build_event(request, envelope_factory)
        partition = self._replica.partition_for(new_event.topic, new_event.key)
        if not request.command_id:  # type: ignore[attr-defined]
            answer = await self.submit(partition, new_event.key, new_event.event, call.timeout_s)
            return results.to_result(command_id, answer, self.log_id) if isinstance(answer, Answer) else answer
        self.bindings.bind(command_id, (partition,))
        answer = await self.submit(partition, new_event.key, new_event.event, call.timeout_s)
        if not isinstance(answer, Answer):
            return answer
        self.bindings.settle(command_id)
        return results.to_result(command_id, answer, self.log_id)

    async def submit(self, partition: Partition, key: str, event: Event, timeout_s: float) -> Answer | pb.CommandResult:
        """Append the event and return the outcome; the answer has no position if the outcome is unknown.

        Raises AppendRefused for a record that no log accepts, for example one over the size limit.
        """
        command_id = event.envelope.command_id
        try:
            return await self._replica.submit(partition, key.encode(), event, timeout_s=timeout_s)
        except (AppendUnknown, LogUnavailable) as error:
            self.unknown += 1
            return results.unknown(command_id, str(error))
