"""Decisions spelled out, for analysts; nothing of ours reads them back into a fold."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class DecisionRecorded(msgspec.Struct, frozen=True, gc=False):
    """What a fold decided of the record at (topic, partition, offset), spelled out for analysts.

    The envelope is that of the record, so whoever writes this of one record writes the same bytes. `event` is its type,
    `outcome` and `reason` are what its author was answered. Per item, `kinds` says what was decided, `subjects` about
    whom, `details` what else there is to say; columns as everywhere, one entry standing for all items.
    """

    envelope: Envelope
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
