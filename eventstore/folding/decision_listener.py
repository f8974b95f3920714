"""Listeners of decisions: what a fold read, changed and answered, as it happens.

The fold itself calls the listener, so the listener sees exactly what was decided. The call must return immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from eventstore.avro.codec import decode
from eventstore.folding.fold import DONE, Outcome, RecordMetadata, RunFold
from eventstore.log import Record
from schemas.events import Event


class DecidedRecord(NamedTuple):
    """The decision about one record. `value` is the record value, undecoded; `version` is the fold version."""

    event: Event
    change: Any
    outcome: Outcome
    at: RecordMetadata
    version: int
    value: bytes


class DecidedRun(NamedTuple):
    """The decisions about a run of records, all of which are done. `first` is the metadata of its first record."""

    records: Sequence[Record]
    fold: RunFold
    change: Any
    first: RecordMetadata
    version: int


class DecisionListener(Protocol):
    """Receives each decision of a partition, in the order of the records."""

    def on_decision(self, decided: DecidedRecord | DecidedRun) -> None:
        """Take this decision, and return at once."""
        ...


class DecisionSink(DecisionListener, Protocol):
    """Listens to all partitions of a replica, and delays the replica until each decision is stored elsewhere."""

    async def drained(self) -> None:
        """Return when every decision taken so far is stored. The replica waits for it before it folds on or saves, so
        that a restart from saved state loses no decision."""
        ...


def decided_records_of(run: DecidedRun) -> Iterator[DecidedRecord]:
    """The decisions about a run, one by one. They equal the decisions of a fold that takes one record at a time."""
    first = run.first
    times_ms = accumulate((record.timestamp_ms for record in run.records), max, initial=first.time_ms)
    next(times_ms)
    changes = run.fold.changes_of_run(run.change)
    for record, change, time_ms in zip(run.records, changes, times_ms, strict=True):
        at = first._replace(offset=record.offset, append_ms=record.timestamp_ms, time_ms=time_ms)
        yield DecidedRecord(decode(record.value), change, DONE, at, run.version, record.value)
