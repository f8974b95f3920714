"""Bugs between a command and its answer: command ids, positions, waits, and definite outcomes."""

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
from tests.seeded.bugs import Bug, SimulatedScenario, SteppedScenario, patched, replaced_by, returns


def _position_at_submission(submit: Any) -> Any:
    async def answered(log: Any, folded: Any, answers: Any, *, event: Any, **options: Any) -> Answer:
        position = folded.position
        append = submit(log, folded, answers, event=event, **options)
        answer: Answer = await append
        return answer._replace(offset=min(position, answer.offset))

    return answered


def _done_after_append(submit: Any) -> Any:
    async def answered(log: Any, folded: Any, answers: Any, *, key: bytes, event: Any, **options: Any) -> Answer:
        position = await log.end(folded.partition)
        await log.append(folded.partition, key, encode(event), timeout_s=5.0)
        return Answer(DONE, folded.partition, position)

    return answered


def _answers_every_waiter(resolve: Any) -> Any:
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


def _position_of_the_duplicate(admit: Any) -> Any:
    def admitted(self: Ledger, envelope: Any, content: bytes, at: Any) -> Any:
        entry = admit(self, envelope, content, at)
        return entry if entry is None else replace(entry, offset=at.offset)

    return admitted


def _outcome_of_the_duplicate(admit: Any) -> Any:
    def admitted(self: Ledger, envelope: Any, content: bytes, at: Any) -> Any:
        return None if envelope.command_id in self.entries else admit(self, envelope, content, at)

    return admitted


def _refused_below_a_floor(contains: Any) -> Any:
    def is_refused(self: UsedIds, command_id: str) -> bool:
        return self.may_hold(command_id)

    return is_refused


def _waits_for_one_record_less(reached: Any) -> Any:
    async def waited(self: Replica, partition: Any, position: int, *, timeout_s: float) -> None:
        await reached(self, partition, position - 1, timeout_s=timeout_s)

    return waited


def _does_not_wait(reached: Any) -> Any:
    async def waited(self: Replica, partition: Any, position: int, *, timeout_s: float) -> None:
        """Return without waiting."""

    return waited


def _ignores_replaced_changes(is_forwarded: Any) -> Any:
    def forwarded(state: Any, mark: int, offset: int) -> bool:
        waiting = [found for found in state.outbox_offsets if found >= mark]
        return mark >= offset or not waiting or waiting[0] >= offset

    return forwarded


def _refuses_before_append(state: Any) -> Any:
    async def handled(self: CommandHandler, shape: Any, request: Any, call: Any) -> pb.CommandResult:
        """Refuse a leave of nodes that are not in the folded state of this process."""
        if shape is nodes.leave and not self._replica.outcomes(request.command_id):
            rows = self._replica.state(self._replica.partition_for(ZONES, request.zone)).nodes.rows
            if not any(name in rows for name in request.names):
                return pb.CommandResult(
                    command_id=request.command_id, outcome=pb.OUTCOME_REFUSED, reason="names: not here"
                )
        answer: pb.CommandResult = await state(self, shape, request, call)
        return answer

    return handled


def _leave_in_the_folded_zone(state: Any) -> Any:
    async def handled(self: CommandHandler, shape: Any, request: Any, call: Any) -> pb.CommandResult:
        """Send a leave to the zone in which this process has folded the node."""
        if shape is nodes.leave:
            zones = [self._replica.state(partition) for partition in self._replica.partitions(ZONES)]
            found = [known.nodes.rows[name] for known in zones for name in request.names if name in known.nodes.rows]
            request.zone = found[0].zone if found else request.zone
        answer: pb.CommandResult = await state(self, shape, request, call)
        return answer

    return handled


def _position_three_ahead(status_of: Any) -> Any:
    def status(folded: Any, end: int) -> Any:
        found = status_of(folded, end)
        return found._replace(position=found.position + 3)

    return status


def _clients_send_only(**kinds: int) -> Any:
    """Clients send only these kinds of commands, and repeat half of the answered ones."""
    clients = tests.simulation.clients
    return patched((clients, "REQUEST_WEIGHTS", replaced_by(kinds)), (clients, "REPEAT_SHARE", replaced_by(0.5)))


BUGS = (
    Bug(
        "dedup-dropped",
        "the ledger stores no command ids",
        "I2",
        lambda: patched((Ledger, "remember", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "dedup-decides-again",
        "a repeated command is decided again, as if its id were new",
        "I2",
        lambda: patched((Ledger, "admit", _outcome_of_the_duplicate)),
        SteppedScenario(1),
    ),
    Bug(
        "ids-forgotten-whole",
        "command ids are dropped after a minute, and a duplicate that lands later is not refused",
        "I2",
        lambda: patched((eventstore.folding.ledger, "KEEP_MS", replaced_by(0)), (UsedIds, "add", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "ids-below-a-floor-refused",
        "every id up to the latest dropped one is refused, so the plane refuses new commands after a clock was fast",
        "I2",
        lambda: patched((UsedIds, "__contains__", _refused_below_a_floor)),
        SteppedScenario(1),
    ),
    Bug(
        "ids-lost-at-restart",
        "saved command ids are not loaded",
        "I11",
        lambda: patched((Ledger, "load", returns())),
        SteppedScenario(1),
    ),
    Bug(
        "position-of-the-copy",
        "a repeated command is answered with the position of its duplicate",
        "I3",
        lambda: patched((Ledger, "admit", _position_of_the_duplicate)),
        SteppedScenario(1),
    ),
    Bug(
        "refused-from-folded-state",
        "a leave of nodes that this process has not folded is refused, and nothing is appended",
        "I23",
        lambda: patched((CommandHandler, "handle", _refuses_before_append)),
        SimulatedScenario(1),
    ),
    Bug(
        "id-routed-by-a-hint",
        "a leave goes to the zone in which the process has the node, and a repeat may go to another zone",
        "I23",
        lambda: patched((CommandHandler, "handle", _leave_in_the_folded_zone), (CommandIdBindings, "bind", returns())),
        SimulatedScenario(1, setup=lambda: _clients_send_only(join=2, leave=1)),
    ),
    Bug(
        "done-without-a-change",
        "a command without effect is answered as done",
        "I23",
        lambda: patched((eventstore.folding.partition, "normalize", lambda normalize: lambda decision: decision)),
        SteppedScenario(1),
    ),
    Bug(
        "session-bound-to-its-replica",
        "a repeated OpenSession through another process is taken for another command",
        "I23",
        lambda: patched(
            (eventstore.folding.partition, "command_digest", lambda command_digest: lambda event, content: content),
            (eventstore.replicas.submission, "command_digest", lambda command_digest: lambda event, content: content),
        ),
        SimulatedScenario(1, setup=lambda: _clients_send_only(claim=2, session=3)),
    ),
    Bug(
        "position-at-submission",
        "an answer has the position of the fold when the command arrived, not that of its record",
        "I3",
        lambda: patched((eventstore.replicas.replica, "submit", _position_at_submission)),
        SimulatedScenario(1),
    ),
    Bug(
        "done-before-decided",
        "a command is answered as done once it is appended, at the end of the log before the append",
        "I1",
        lambda: patched((eventstore.replicas.replica, "submit", _done_after_append)),
        SimulatedScenario(1),
    ),
    Bug(
        "any-record-answers",
        "the first folded record answers every waiting command",
        "I1",
        lambda: patched((AnswerWaitList, "resolve", _answers_every_waiter)),
        SimulatedScenario(1),
    ),
    Bug(
        "position-rounded-up",
        "an answer has the position at the end of its batch",
        "I6",
        lambda: patched((AnswerWaitList, "resolve", _end_of_the_batch)),
        SimulatedScenario(1),
    ),
    Bug(
        "min-position-ignored",
        "a query with a minimum position does not wait for it",
        "I12",
        lambda: patched((Replica, "wait_for_position", _does_not_wait)),
        SimulatedScenario(1),
    ),
    Bug(
        "min-position-one-short",
        "a query waits for one record less than its minimum position",
        "I12",
        lambda: patched((Replica, "wait_for_position", _waits_for_one_record_less)),
        SimulatedScenario(1),
    ),
    Bug(
        "overtaken-change-unseen",
        "a query of fleet does not wait for a change that a later change of the same node has replaced",
        "I12",
        lambda: patched((commands.queries.position_waiter, "is_forwarded", _ignores_replaced_changes)),
        SimulatedScenario(53, setup=lambda: patched((tests.simulation.clients, "READ_BACK_SHARE", replaced_by(1.0)))),
    ),
    Bug(
        "position-ahead",
        "a replica reports a position that is three records too high",
        "I9",
        lambda: patched((eventstore.replicas.folded_log, "status_of", _position_three_ahead)),
        SimulatedScenario(1),
    ),
)
