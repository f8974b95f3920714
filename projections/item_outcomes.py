"""The outcome of a record with several items, from the outcome of each."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.folding.fold import ItemOutcome, Outcome

_PRECEDENCE = ("done", "waiting", "unchanged", "refused")
"""Codes of outcomes in order of precedence: the code of a record is the first one that any of its items has."""


def merged(names: Sequence[str], outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a record, from the outcomes of its items. It lists only the items that have a result, a reason or
    another code than the record.
    """
    first = min(outcomes, key=lambda outcome: _PRECEDENCE.index(outcome.code))
    items = tuple(
        ItemOutcome(
            name, outcome.code, outcome.reason, outcome.reason_code, outcome.reason_fields, result=outcome.result
        )
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome.result or outcome.reason or outcome.code != first.code
    )
    return Outcome(first.code, first.reason, {}, items, first.reason_code, first.reason_fields)
