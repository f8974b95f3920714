"""Decisions rendered for analysis. No fold reads them."""

from __future__ import annotations

from schemas.envelope import Event


class DecisionRecorded(Event, frozen=True, gc=False):
    """The decision about the record at (topic, partition, offset), rendered for analysis.

    The envelope is that of the record, so every process renders the same bytes for one record. `event` is its type;
    `outcome` and `reason` are those of the command. Each item has the kind of the decision in `kinds`, its subject in
    `subjects` and further fields in `details`. A column of one entry applies to all items.
    """

    schema_id = 33
    topic: str
    partition: int
    offset: int
    appended_ms: int
    event: str
    fold_version: int
    outcome: str
    reason: str
    kinds: list[str]
    subjects: list[str]
    details: list[dict[str, str]]
