"""Results of commands as API messages, from what the folds decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventstore.folding.fold import ItemOutcome
from eventstore.log import Partition
from eventstore.position import Position, partition_token, to_token
from eventstore.reasons import Reason
from eventstore.replicas.replica import Answer
from projections.fleet.withdrawals.command_outcomes import CommandOutcome
from schemas.api import dpuplane_pb2 as pb

_CODES = {
    "done": pb.OUTCOME_DONE,
    "waiting": pb.OUTCOME_WAITING,
    "held": pb.OUTCOME_HELD,
    "unchanged": pb.OUTCOME_UNCHANGED,
    "refused": pb.OUTCOME_REFUSED,
}


def to_result(command_id: str, answer: Answer, log_id: str) -> pb.CommandResult:
    """The result of a command that a fold has decided. The fields of the fold's result have the names of the message's
    fields."""
    outcome = answer.outcome
    message = pb.CommandResult(
        command_id=command_id,
        outcome=_CODES[outcome.code],
        reason=outcome.reason,
        reason_code=outcome.reason_code,
        reason_fields=outcome.reason_fields,
        position=partition_token(log_id, answer.partition, answer.offset + 1),
    )
    for name, value in outcome.result.items():
        setattr(message, name, value)
    if outcome.items:
        message.items.extend(map(_item, outcome.items))
    return message


_PRECEDENCE = ("held", "waiting", "done", "unchanged", "refused")
"""Order of precedence of the outcomes of several partitions: the first of these that occurs is the outcome of the
command.
"""


def merged_result(command_id: str, answers: Sequence[Answer], log_id: str) -> pb.CommandResult:
    """The result of a command that one or more partitions decided. If several did, the result lists the outcome of
    each."""
    decisive = min(answers, key=lambda answer: _PRECEDENCE.index(answer.outcome.code))
    message = to_result(command_id, decisive, log_id)
    if len(answers) > 1:
        message.position = token(log_id, {answer.partition: answer.offset + 1 for answer in answers})
        message.partitions.extend(_by_partition(answer, log_id) for answer in answers)
    return message


def with_fleet_outcome(answer: pb.CommandResult, outcome: CommandOutcome | None) -> pb.CommandResult:
    """The result of a command that its zone accepted, corrected by the outcome in fleet."""
    if outcome is not None and answer.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_HELD):
        answer.outcome = _CODES[outcome.code]
        set_reason(answer, outcome.reason, outcome.reason_code, outcome.reason_fields)
        if outcome.hold >= 0:
            answer.hold = outcome.hold
    return answer


def set_reason(answer: pb.CommandResult, reason: str, code: str, fields: Mapping[str, str]) -> None:
    """Replace the reason of a result."""
    answer.reason, answer.reason_code = reason, code
    answer.reason_fields.clear()
    answer.reason_fields.update(fields)


def _by_partition(answer: Answer, log_id: str) -> pb.PartitionResult:
    return pb.PartitionResult(
        partition=str(answer.partition),
        outcome=_CODES[answer.outcome.code],
        reason=answer.outcome.reason,
        reason_code=answer.outcome.reason_code,
        reason_fields=answer.outcome.reason_fields,
        position=partition_token(log_id, answer.partition, answer.offset + 1),
    )


def _item(item: ItemOutcome) -> pb.ItemResult:
    message = pb.ItemResult(
        name=item.name,
        outcome=_CODES[item.code],
        reason=item.reason,
        reason_code=item.reason_code,
        reason_fields=item.reason_fields,
    )
    for name, value in item.result.items():
        setattr(message, name, value)
    return message


def expired(command_id: str) -> pb.CommandResult:
    """The result of a command that can no longer take effect: the log, read to its end, has no record of it."""
    reason = "it did not reach the log in time and can no longer take effect"
    code = Reason.COMMAND_TOO_LATE
    return pb.CommandResult(command_id=command_id, outcome=pb.OUTCOME_REFUSED, reason=reason, reason_code=code)


def unknown(command_id: str, reason: str, code: Reason = Reason.AWAITING_LOG) -> pb.CommandResult:
    """The result of a command whose record may or may not be in the log. A later query by the command's id returns the
    outcome."""
    return pb.CommandResult(command_id=command_id, outcome=pb.OUTCOME_UNKNOWN, reason=reason, reason_code=code)


def token(log_id: str, offsets: dict[Partition, int]) -> str:
    return to_token(Position(log_id, offsets))
