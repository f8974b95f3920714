"""Listeners of the decisions of one partition: what the fold read, changed and answered, as it happens.

The fold itself calls the listener, so the listener sees exactly what was decided. The call must return immediately. A
decision that the listener has not dealt with when its process dies is delivered again: each save stores the first such
offset, and after a restart the listener is told that offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from eventstore.folding.fold import Outcome, RecordMetadata, RunFold
from eventstore.log import Record
from schemas.events import Event


class DecidedRecord(NamedTuple):
    """The decision about one record. `value` is the record value, undecoded; `version` is that of the fold."""

    event: Event
    change: Any
    outcome: Outcome
    at: RecordMetadata
    version: int
    value: bytes


class DecidedRun(NamedTuple):
    """The decisions about a run of records, all of which are done. `first` is where and when the first of its records
    stands."""

    records: Sequence[Record]
    fold: RunFold
    change: Any
    first: RecordMetadata
    version: int


class DecisionListener(Protocol):
    """Is called with each decision of one partition, in the order of its records."""

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        """Take this decision, and return at once."""
        ...

    def owes_from(self, position: int) -> int:
        """The first offset below `position` whose decision is not dealt with; `position` if none is."""
        ...

    def restored(self, owed_from: int, position: int) -> None:
        """What was decided from `owed_from` up to before `position` was delivered to a listener before this one."""
        ...
