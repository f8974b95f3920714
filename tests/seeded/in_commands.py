"""Bugs between a command and its answer: ids, positions, waiting, certainty of outcomes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import commands.queries.position_waiter
import eventstore.folding.ledger
import eventstore.folding.partition
import eventstore.replicas.folded_log
import eventstore.replicas.replica
import eventstore.replicas.submission
import tests.simulation.clients
from commands.handlers.command_handler import CommandHandler
from commands.handlers.command_ids import CommandIdBindings
from commands.requests import nodes
from eventstore.avro.codec import encode
from eventstore.folding.fold import DONE
from eventstore.folding.ledger import Ledger
from eventstore.folding.used_ids import UsedIds
from eventstore.log import ZONES
from eventstore.replicas.replica import Answer, Replica
from eventstore.replicas.wait_lists import AnswerWaitList
from schemas.api import dpuplane_pb2 as pb
from tests.seeded.bugs import Bug, Simulated, Stepped, does, instead, patched


def _answers_before_append(submit: Any) -> Any:
    async def answered(log: Any, folded: Any, answers: Any, *, event: Any, **options: Any) -> Answer:
        position = folded.position
        append = submit(log, folded, answers, event=event, **options)
        answer: Answer = await append
        return answer._replace(offset=min(position, answer.offset))

    return answered


def _says_done_at_once(submit: Any) -> Any:
    async def answered(log: Any, folded: Any, answers: Any, *, key: bytes, event: Any, **options: Any) -> Answer:
        position = await log.end(folded.partition)
        await log.append(folded.partition, key, encode(event), timeout_s=5.0)
        return Answer(DONE, folded.partition, position)

    return answered


def _answers_anybody(resolve: Any) -> Any:
    def resolved(self: AnswerWaitList, partition: Any, entries: Any) -> None:
        for entry in entries:
            for futures in self._waiting.values():
                for future in futures:
                    if not future.done():
                        future.set_result(Answer(entry.outcome, partition, entry.offset))

    return resolved


def _end_of_the_batch(resolve: Any) -> Any:
    def resolved(self: AnswerWaitList, partition: Any, entries: Any) -> None:
        resolve(self, partition, [replace(entry, offset=entry.offset // 64 * 64 + 63) for entry in entries])

    return resolved


def _position_of_the_copy(admit: Any) -> Any:
    def admitted(self: Ledger, envelope: Any, content: bytes, at: Any) -> Any:
        entry = admit(self, envelope, content, at)
        return entry if entry is None else replace(entry, offset=at.offset)

    return admitted


def _outcome_of_the_copy(admit: Any) -> Any:
    def admitted(self: Ledger, envelope: Any, content: bytes, at: Any) -> Any:
        return None if envelope.command_id in self.entries else admit(self, envelope, content, at)

    return admitted


def _under_a_floor(contains: Any) -> Any:
    def is_refused(self: UsedIds, command_id: str) -> bool:
        return self.may_hold(command_id)

    return is_refused


def _one_short(reached: Any) -> Any:
    async def waited(self: Replica, partition: Any, position: int, *, timeout_s: float) -> None:
        await reached(self, partition, position - 1, timeout_s=timeout_s)

    return waited


def _not_at_all(reached: Any) -> Any:
    async def waited(self: Replica, partition: Any, position: int, *, timeout_s: float) -> None:
        """Accept whatever position has been reached."""

    return waited


def _waits_until_nothing_below_waits(is_forwarded: Any) -> Any:
    def forwarded(state: Any, mark: int, offset: int) -> bool:
        waiting = [found for found in state.outbox_offsets if found >= mark]
        return mark >= offset or not waiting or waiting[0] >= offset

    return forwarded


def _refuses_before_append(state: Any) -> Any:
    async def handled(self: CommandHandler, shape: Any, request: Any, call: Any) -> pb.CommandResult:
        """Look up the names of a request in the state that this process has folded."""
        if shape is nodes.leave and not self._replica.outcomes(request.command_id):
            rows = self._replica.state(self._replica.partition_for(ZONES, request.zone)).nodes.rows
            if not any(name in rows for name in request.names):
                return pb.CommandResult(
                    command_id=request.command_id, outcome=pb.OUTCOME_REFUSED, reason="names: not here"
                )
        answer: pb.CommandResult = await state(self, shape, request, call)
        return answer

    return handled


def _where_it_was_last_seen(state: Any) -> Any:
    async def handled(self: CommandHandler, shape: Any, request: Any, call: Any) -> pb.CommandResult:
        """Send a leave to the zone in which this process has folded the node."""
        if shape is nodes.leave:
            zones = [self._replica.state(partition) for partition in self._replica.partitions(ZONES)]
            found = [known.nodes.rows[name] for known in zones for name in request.names if name in known.nodes.rows]
            request.zone = found[0].zone if found else request.zone
        answer: pb.CommandResult = await state(self, shape, request, call)
        return answer

    return handled


def _ahead(status_of: Any) -> Any:
    def status(folded: Any, end: int) -> Any:
        found = status_of(folded, end)
        return found._replace(position=found.position + 3)

    return status


def _only(**kinds: int) -> Any:
    """Clients that send only these commands, and repeat half of the answered ones."""
    clients = tests.simulation.clients
    return patched((clients, "REQUEST_WEIGHTS", instead(kinds)), (clients, "REPEAT_SHARE", instead(0.5)))


BUGS = (
    Bug(
        "dedup-dropped",
        "the ledger remembers no ids",
        "I2",
        lambda: patched((Ledger, "remember", does())),
        Stepped(1),
    ),
    Bug(
        "dedup-decides-again",
        "a repeated command is decided once more, as if it had not been seen",
        "I2",
        lambda: patched((Ledger, "admit", _outcome_of_the_copy)),
        Stepped(1),
    ),
    Bug(
        "ids-forgotten-whole",
        "ids are forgotten after a minute, and nothing refuses a copy that lands later",
        "I2",
        lambda: patched((eventstore.folding.ledger, "KEEP_MS", instead(0)), (UsedIds, "add", does())),
        Stepped(1),
    ),
    Bug(
        "ids-under-a-floor",
        "every id up to the latest that was forgotten is refused, so a clock that was fast makes the plane refuse",
        "I2",
        lambda: patched((UsedIds, "__contains__", _under_a_floor)),
        Stepped(1),
    ),
    Bug(
        "ids-lost-at-restart",
        "the ids that were saved are not loaded",
        "I11",
        lambda: patched((Ledger, "load", does())),
        Stepped(1),
    ),
    Bug(
        "position-of-the-copy",
        "a repeated command is answered with the position of the repetition",
        "I3",
        lambda: patched((Ledger, "admit", _position_of_the_copy)),
        Stepped(1),
    ),
    Bug(
        "refused-from-folded-state",
        "a leave of nodes that this process has not folded is refused, and nothing is appended",
        "I23",
        lambda: patched((CommandHandler, "handle", _refuses_before_append)),
        Simulated(1),
    ),
    Bug(
        "id-routed-by-a-hint",
        "a leave goes to the zone in which a process knows the node, which may be another one at the repeat",
        "I23",
        lambda: patched((CommandHandler, "handle", _where_it_was_last_seen), (CommandIdBindings, "bind", does())),
        Simulated(1, given=lambda: _only(join=2, leave=1)),
    ),
    Bug(
        "done-without-a-change",
        "a command that finds nothing to do is told as done",
        "I23",
        lambda: patched((eventstore.folding.partition, "normalize", lambda normalize: lambda decision: decision)),
        Stepped(1),
    ),
    Bug(
        "session-bound-to-its-replica",
        "a session that is opened again through another process is another command",
        "I23",
        lambda: patched(
            (eventstore.folding.partition, "command_digest", lambda command_digest: lambda event, content: content),
            (eventstore.replicas.submission, "command_digest", lambda command_digest: lambda event, content: content),
        ),
        Simulated(1, given=lambda: _only(claim=2, session=3)),
    ),
    Bug(
        "position-guessed",
        "an answer carries where the fold stood when the command came, not where its record is",
        "I3",
        lambda: patched((eventstore.replicas.replica, "submit", _answers_before_append)),
        Simulated(1),
    ),
    Bug(
        "done-before-decided",
        "a command is answered as done as soon as it is appended, at the end that the log had before",
        "I1",
        lambda: patched((eventstore.replicas.replica, "submit", _says_done_at_once)),
        Simulated(1),
    ),
    Bug(
        "answer-of-another",
        "whatever is folded first answers everybody who waits",
        "I1",
        lambda: patched((AnswerWaitList, "resolve", _answers_anybody)),
        Simulated(1),
    ),
    Bug(
        "position-rounded-up",
        "an answer carries the end of the batch that its record may be in",
        "I6",
        lambda: patched((AnswerWaitList, "resolve", _end_of_the_batch)),
        Simulated(1),
    ),
    Bug(
        "min-position-ignored",
        "a query that asks for a position is answered from whatever is folded",
        "I12",
        lambda: patched((Replica, "wait_for_position", _not_at_all)),
        Simulated(1),
    ),
    Bug(
        "min-position-one-short",
        "a query waits for the record before the one that it asks for",
        "I12",
        lambda: patched((Replica, "wait_for_position", _one_short)),
        Simulated(1),
    ),
    Bug(
        "overtaken-change-unseen",
        "a reader of fleet does not wait for a change that a later one of its node has overtaken",
        "I12",
        lambda: patched((commands.queries.position_waiter, "is_forwarded", _waits_until_nothing_below_waits)),
        Simulated(45, given=lambda: patched((tests.simulation.clients, "READ_BACK_SHARE", instead(1.0)))),
    ),
    Bug(
        "position-ahead",
        "a replica says that it has folded three records more than it has",
        "I9",
        lambda: patched((eventstore.replicas.folded_log, "status_of", _ahead)),
        Simulated(1),
    ),
)
