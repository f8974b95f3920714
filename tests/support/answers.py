"""Helpers that read positions and outcomes from API responses and compare them with the folds."""

from __future__ import annotations

from eventstore.folding.fold import ItemOutcome, Outcome, OutcomeCode
from eventstore.log import Partition
from eventstore.position import from_token
from eventstore.replicas.replica import Answer
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name


def positions_of(token: str) -> dict[Partition, int]:
    """The positions in a token, for a token of any log."""
    return dict(from_token(token, token.partition(":")[0]).offsets)


def answer_of(answer: pb.CommandResult) -> Answer:
    """A response that carries a position."""
    ((partition, position),) = positions_of(answer.position).items()
    return Answer(outcome_of(answer), partition, position - 1)


def outcome_of(answer: pb.CommandResult) -> Outcome:
    """The outcome that a response reports."""
    return Outcome(
        _code(answer.outcome),
        answer.reason,
        {name: getattr(answer, name) for name in ("index", "queue_position", "hold") if answer.HasField(name)},
        tuple(_item(item) for item in answer.items),
        answer.reason_code,
        dict(sorted(answer.reason_fields.items())),
    )


def _item(item: pb.ItemResult) -> ItemOutcome:
    result = {name: getattr(item, name) for name in ("index", "queue_position") if item.HasField(name)}
    fields = dict(sorted(item.reason_fields.items()))
    return ItemOutcome(item.name, _code(item.outcome), item.reason, item.reason_code, fields, result)


def _code(outcome: int) -> OutcomeCode:
    code: OutcomeCode = outcome_name(outcome)  # type: ignore[assignment]
    return code
