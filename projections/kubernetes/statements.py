"""What became of the specs of objects that the plane reads: taken into the log, refused, or not stated.

An edge states each spec once. `status.stated` of the object has the digest of that spec, so a restarted edge does not
state it again, and a spec that was rejected, or changed by another command since, is not repeated without an end. A
cluster that is restored from a backup has old specs with their old statuses: they were stated once, and are not again.

The edge and the writer of statuses share a table of statements, because only one of them decides what to write.
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
    """What became of the spec of an object. `stated` is the digest of a spec that the log has decided on; it is empty
    for a spec that the edge did not append."""

    generation: int
    stated: str
    is_accepted: bool
    reason: str
    message: str

    def condition(self, generation: int) -> Document:
        message = shortened(self.message, MAX_MESSAGE)
        return Condition(ACCEPTED, self.is_accepted, self.reason, message).document(generation)


class StatementTable:
    """The statements of this process that the status of their object does not show yet, by the kind's plural and the
    name. The listener of a kind gets the name of an object whose statement changed."""

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
    """The fields of a status that a statement decides."""

    stated: str
    conditions: tuple[Document, ...]


NO_ACCEPTANCE = Acceptance("", ())


def spec_digest(spec: Model, restate: str) -> str:
    """The digest of a spec and of the annotation that asks to state it again. Fields with their default do not count:
    a later version of the definition may have more of them."""
    content = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    text = json.dumps([content, restate], sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def acceptance(statement: Statement | None, written: Document) -> Acceptance:
    """The acceptance to write over a status: that of the statement, unless the status has one of the same spec."""
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
