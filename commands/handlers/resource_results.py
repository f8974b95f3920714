"""Results of ApplyResources: faults of objects as errors or items, and the results of several comparisons as one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from commands.queries.resources import message_of
from commands.requests.resources import CheckedObject
from commands.requests.validation import InvalidRequest
from commands.results import set_reason
from commands.rpc.errors import PreconditionFailed
from eventstore.errors import PermanentError
from eventstore.reasons import Fault, Reason
from projections.resources.annotations import of_manifest
from projections.resources.plan import PlanStep
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from schemas.api import dpuplane_pb2 as pb

_FAULT_CHARACTERS = 800
"""Maximum size of the sentences of an error, which a response header contains three times."""
_NAMED = 5


def error_of(objects: Sequence[CheckedObject]) -> PermanentError:
    """The error of a request with faulty objects. It has as many sentences as fit."""
    sentences = [f"resources[{n}].{fault}" for n, each in enumerate(objects) for fault in each.faults]
    shown: list[str] = []
    for sentence in sentences:
        if shown and sum(map(len, shown)) + len(sentence) > _FAULT_CHARACTERS:
            break
        shown.append(sentence)
    more = len(sentences) - len(shown)
    text = "; ".join(shown) + (f"; and {more} more faults, which a dry run lists" if more else "")
    field = sentences[0].partition(": ")[0]
    if all(each.is_refused_by_known for each in objects if each.faults):
        return PreconditionFailed(Fault(text, Reason.RESOURCE_UPDATE_INVALID, field=field))
    return InvalidRequest(Fault(text, field=field))


def summary_of(objects: Sequence[CheckedObject]) -> Fault:
    """The reason of a dry run of faulty objects."""
    faulty = [each for each in objects if each.faults]
    return Fault(f"resources: {len(faulty)} of {len(objects)} objects have faults, so none would be applied")


def refusal_of(objects: Iterable[CheckedObject], so_far: pb.CommandResult) -> pb.CommandResult:
    """The result of objects that had changed, if the present state of some does not allow the change. These are refused
    for their faults. The others were not applied either, and are refused because they have changed."""
    answer = pb.CommandResult(command_id=so_far.command_id, outcome=pb.OUTCOME_REFUSED, position=so_far.position)
    for each in objects:
        changed = Fault(f"metadata.name: {each.at.name} has changed meanwhile; apply it again", Reason.RESOURCE_CHANGED)
        faults = [Fault(fault, Reason.RESOURCE_UPDATE_INVALID) for fault in each.faults] or [changed]
        answer.items.add(
            name=each.at.key,
            outcome=pb.OUTCOME_REFUSED,
            reason="; ".join(faults),
            reason_code=faults[0].reason,
            reason_fields=faults[0].fields,
        )
    if not so_far.items:
        (item,) = answer.items
        set_reason(answer, item.reason, item.reason_code, item.reason_fields)
        del answer.items[:]
    return answer


def change_of(checked: CheckedObject, offset: int, now_ms: int, actor: str) -> pb.ResourceChange:
    """The change of an object by a record at this offset."""
    at, known = checked.at, checked.known
    change = pb.ResourceChange(faults=checked.faults)
    if known is not None:
        change.before.CopyFrom(message_of(at, known))
    if checked.faults:
        return change
    generation = 1 if known is None else known.generation + (known.spec != checked.spec)
    stated = checked.annotations if checked.revision else of_manifest(checked.annotations, known).annotations
    row = Resource(
        uid="" if known is None else known.uid,
        generation=generation,
        created_ms=now_ms if known is None else known.created_ms,
        changed_ms=now_ms,
        changed_offset=offset,
        labels=checked.labels,
        annotations=stated,
        spec=checked.spec,
        actor=actor,
    )
    is_same = known is not None and _content(known) == _content(row)
    change.after.CopyFrom(change.before if is_same else message_of(at, row))
    return change


def step_of(step: PlanStep) -> pb.PlanStep:
    """A step of a plan as a message."""
    changes = [
        pb.FieldChange(field=field, before=_json(before), after=_json(after))
        for field, (before, after) in step.changes.items()
    ]
    return pb.PlanStep(
        action=step.action.name.lower(), name=_name_of(step.key), owner=_name_of(step.owner), changes=changes
    )


def waiting_notes(state: ResourcesState, deleted: Iterable[ObjectId]) -> dict[str, str]:
    """For each object whose deletion waits, by name, the objects that it waits for."""
    notes = {}
    for at in deleted:
        row = state.objects.rows.get(at.key)
        if row is not None and row.deleted_ms:
            others = [object_id(key) for key in heapq.nsmallest(_NAMED, state.users(at.key))]
            named = ", ".join(f"{other.kind.partition('.')[0]} {other.name}" for other in others)
            count = state.uses(at.key)
            more = f" and {count - _NAMED} more" if count > _NAMED else ""
            notes[at.key] = f"it stays until these no longer use it: {named}{more}"
    return notes


def add_notes(answer: pb.CommandResult, notes: Mapping[str, str]) -> None:
    """Add notes to the items of an answer, by name."""
    items = {item.name: item for item in answer.items}
    for name, note in notes.items():
        item = items.get(name) or answer.items.add(name=name, outcome=answer.outcome)
        item.note = note


def _content(row: Resource) -> tuple[dict[str, str], dict[str, str], str]:
    """The content that a user states of an object."""
    return row.labels, row.annotations, row.spec


def _name_of(key: str) -> pb.ResourceName:
    at = object_id(key)
    return pb.ResourceName(kind=at.kind, namespace=at.namespace, name=at.name)


def _json(value: Any) -> str:
    """A value as JSON; empty if it is absent."""
    return "" if value is None else msgspec.json.encode(value, order="sorted").decode()
