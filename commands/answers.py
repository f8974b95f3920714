"""Answers from the log, as messages."""

from __future__ import annotations

from eventstore.folding.fold import ItemOutcome
from eventstore.log import Partition
from eventstore.position import Position, one_token, to_token
from eventstore.replicas.replica import Answer
from schemas.api import dpuplane_pb2 as pb

_CODES = {
    "done": pb.Answer.done,
    "waiting": pb.Answer.waiting,
    "held": pb.Answer.held,
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


def _item(item: ItemOutcome) -> pb.ItemAnswer:
    return pb.ItemAnswer(name=item.name, outcome=_CODES[item.code], reason=item.reason)


def refused(command_id: str, reason: str) -> pb.Answer:
    """A refusal that needed no record: nothing was appended."""
    return pb.Answer(command_id=command_id, outcome=pb.Answer.refused, reason=reason)


def unknown(command_id: str, reason: str) -> pb.Answer:
    """Nobody knows yet; the id makes it definite."""
    return pb.Answer(command_id=command_id, outcome=pb.Answer.unknown, reason=reason)


def token(log_id: str, offsets: dict[Partition, int]) -> str:
    return to_token(Position(log_id, offsets))
