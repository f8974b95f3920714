"""Answers from the log, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.folding.fold import ItemOutcome
from eventstore.log import Partition
from eventstore.position import Position, one_token, to_token
from eventstore.replicas.replica import Answer
from projections.fleet.command_outcomes import CommandOutcome
from schemas.api import dpuplane_pb2 as pb

_CODES = {
    "done": pb.Answer.done,
    "waiting": pb.Answer.waiting,
    "held": pb.Answer.held,
    "unchanged": pb.Answer.unchanged,
    "refused": pb.Answer.refused,
}


def told(command_id: str, answer: Answer, log_id: str) -> pb.Answer:
    """The answer to a command that the log has decided."""
    outcome = answer.outcome
    message = pb.Answer(
        command_id=command_id,
        outcome=_CODES[outcome.code],
        reason=outcome.reason,
        position=one_token(log_id, answer.partition, answer.offset + 1),
    )
    if outcome.index >= 0:
        message.index = outcome.index
    if outcome.place > 0:
        message.place = outcome.place
    if outcome.hold >= 0:
        message.hold = outcome.hold
    if outcome.items:
        message.items.extend(map(_item, outcome.items))
    return message


_FIRST = ("held", "waiting", "done", "unchanged", "refused")
"""The outcome of a command that several partitions decided is the first of these that one of them gave."""


def told_by_all(command_id: str, given: Sequence[Answer], log_id: str) -> pb.Answer:
    """The answer to a command that several partitions have decided, with the outcome of each if they are several."""
    first = min(given, key=lambda answer: _FIRST.index(answer.outcome.code))
    message = told(command_id, first, log_id)
    if len(given) > 1:
        message.position = token(log_id, {answer.partition: answer.offset + 1 for answer in given})
        message.partitions.extend(_by_partition(answer, log_id) for answer in given)
    return message


def found(answer: pb.Answer, outcome: CommandOutcome | None) -> pb.Answer:
    """The answer to a command that its zone took, with what became of it in fleet."""
    if outcome is not None and answer.outcome in (pb.Answer.done, pb.Answer.held):
        answer.outcome = _CODES[outcome.code]
        answer.reason = outcome.reason
        if outcome.hold >= 0:
            answer.hold = outcome.hold
    return answer


def _by_partition(answer: Answer, log_id: str) -> pb.PartitionAnswer:
    return pb.PartitionAnswer(
        partition=str(answer.partition),
        outcome=_CODES[answer.outcome.code],
        reason=answer.outcome.reason,
        position=one_token(log_id, answer.partition, answer.offset + 1),
    )


def _item(item: ItemOutcome) -> pb.ItemAnswer:
    return pb.ItemAnswer(name=item.name, outcome=_CODES[item.code], reason=item.reason)


def never(command_id: str) -> pb.Answer:
    """A command of which the log, read to its end, has no record that could still take effect."""
    reason = "it did not come into the log in time, and takes no effect any more"
    return pb.Answer(command_id=command_id, outcome=pb.Answer.refused, reason=reason)


def unknown(command_id: str, reason: str) -> pb.Answer:
    """Nobody knows yet; the id makes it definite."""
    return pb.Answer(command_id=command_id, outcome=pb.Answer.unknown, reason=reason)


def token(log_id: str, offsets: dict[Partition, int]) -> str:
    return to_token(Position(log_id, offsets))
