"""Results of a command about objects that was compared with the present objects several times.

The fold refuses an object that has changed since its comparison. The command then compares this object again, under a
command id of its own (`eventstore.ids.comparison_id`), and the result of that comparison replaces the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable

from commands.results import set_reason
from eventstore.reasons import Reason
from schemas.api import dpuplane_pb2 as pb

COMPARISONS_MAX = 5
"""Maximum number of comparisons of one command. After the last of them, the refusal of the fold is the result."""

_CHANGED = (Reason.RESOURCE_CHANGED, Reason.RESOURCE_NOT_FOUND)

_PRECEDENCE = (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED, pb.OUTCOME_REFUSED)
"""Order of precedence of the outcomes of objects: the first of these that occurs is the outcome of the command."""


def changed_objects(result: pb.CommandResult, names: Iterable[str]) -> list[str]:
    """The objects that the fold refused because they have changed since their comparison. `names` has the object of a
    command about one object, whose result has no items."""
    if not result.items:
        return [*names] if result.reason_code in _CHANGED else []
    return [item.name for item in result.items if item.reason_code in _CHANGED]


def with_later_comparison(result: pb.CommandResult, later: pb.CommandResult) -> pb.CommandResult:
    """The result of a command, after `later`, the result of another comparison of the objects that had changed."""
    if not result.items:
        return later
    changed = changed_objects(result, ())
    replacements = {item.name: item for item in later.items} or dict.fromkeys(changed, _item_of(later))
    for item in result.items:
        if item.name in replacements:
            name = item.name
            item.CopyFrom(replacements[name])
            item.name = name
    decisive = min(result.items, key=lambda item: _PRECEDENCE.index(item.outcome))
    result.outcome, result.position = decisive.outcome, later.position
    set_reason(result, decisive.reason, decisive.reason_code, decisive.reason_fields)
    return result


def _item_of(result: pb.CommandResult) -> pb.ItemResult:
    """The result of a command about one object, as an item."""
    item = pb.ItemResult(
        outcome=result.outcome,
        reason=result.reason,
        reason_code=result.reason_code,
        reason_fields=result.reason_fields,
    )
    if result.HasField("generation"):
        item.generation = result.generation
    return item
