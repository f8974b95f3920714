"""The results of the specs that an edge reads from objects: accepted by a fold, refused by a fold, or not submitted.

An edge submits each spec once. The field `stated` of the object's status has the digest of the last submitted spec. So
a restarted edge does not submit that spec again, even if it was rejected, or if another command has changed its values
since. In a cluster that was restored from a backup, each old spec has its old status. So the edge does not submit these
specs again either.

The result of a spec becomes the condition Accepted of the object. The edge puts results into a table, and the writer of
statuses reads them from it, because only the writer decides what to write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from projections.kubernetes.status_body import TRANSITION, Condition, Document, conditions_of, shortened
from schemas.resources.model import Model

ACCEPTED = "Accepted"
STATED = "stated"
MAX_MESSAGE = 253
_DIGEST_BYTES = 16


class Statement(NamedTuple):
    """The result of the spec of an object. `stated` is the digest of the spec if a fold has decided on it, and empty if
    the edge did not submit the spec."""

    generation: int
    stated: str
    is_accepted: bool
    reason: str
    message: str

    def condition(self, generation: int) -> Document:
        message = shortened(self.message, MAX_MESSAGE)
        return Condition(ACCEPTED, self.is_accepted, self.reason, message).document(generation)


class StatementTable:
    """Results that the statuses of their objects do not show yet, by the kind's plural and the object's name. The
    listener of a kind gets the name of each object whose result changed."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[[str], None]] = {}
        self._rows: dict[tuple[str, str], Statement] = {}

    def get(self, plural: str, name: str) -> Statement | None:
        return self._rows.get((plural, name))

    def put(self, plural: str, name: str, statement: Statement) -> None:
        if self._rows.get((plural, name)) != statement:
            self._rows[plural, name] = statement
            listener = self.listeners.get(plural)
            if listener is not None:
                listener(name)

    def forget(self, plural: str, name: str) -> None:
        self._rows.pop((plural, name), None)


class Acceptance(NamedTuple):
    """The fields of a status that follow from the result of the spec."""

    stated: str
    conditions: tuple[Document, ...]


NO_ACCEPTANCE = Acceptance("", ())


def spec_digest(spec: Model, restate: str) -> str:
    """The digest of a spec and of the annotation that asks to submit it again. Fields with their default value do not
    count. So the digest stays the same when a later version of the definition adds fields."""
    content = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    text = json.dumps([content, restate], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def acceptance(statement: Statement | None, written: Document) -> Acceptance:
    """The acceptance for the next status. It follows from `statement`, unless the present status already shows a
    decision about the same spec or a later one."""
    shown = str(written.get(STATED, ""))
    condition = next((found for found in conditions_of(written) if found.get("type") == ACCEPTED), None)
    if condition is not None:
        condition = {name: part for name, part in condition.items() if name != TRANSITION}
    generation = int(condition.get("observedGeneration", 0)) if condition is not None else 0
    if statement is None or (statement.generation, statement.stated != "") < (generation, shown != ""):
        return Acceptance(shown, (condition,) if condition is not None else ())
    if condition is not None and shown and statement.stated == shown:
        return Acceptance(shown, ({**condition, "observedGeneration": max(generation, statement.generation)},))
    return Acceptance(statement.stated or shown, (statement.condition(statement.generation),))
