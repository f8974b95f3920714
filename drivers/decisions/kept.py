"""A decision as it is kept until it is written: its event stays encoded, for decoded it takes five times the memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from eventstore.avro.codec import decode
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun
from eventstore.folding.fold import DONE, Outcome, RecordMetadata


class Kept(NamedTuple):
    """One decision; `value` is that of the record."""

    value: bytes
    change: Any
    outcome: Outcome
    at: RecordMetadata
    version: int

    def decided_record(self) -> DecidedRecord:
        """As it was told."""
        return DecidedRecord(decode(self.value), self.change, self.outcome, self.at, self.version, self.value)


def kept(decided_record: DecidedRecord) -> Kept:
    """A decision, without its event."""
    return Kept(
        decided_record.value, decided_record.change, decided_record.outcome, decided_record.at, decided_record.version
    )


def kept_of(run: DecidedRun) -> Iterator[Kept]:
    """The decisions of a run, one by one."""
    first = run.first
    times_ms = accumulate((record.timestamp_ms for record in run.records), max, initial=first.time_ms)
    next(times_ms)
    changes = run.fold.changes_of_run(run.change)
    for record, change, time_ms in zip(run.records, changes, times_ms, strict=True):
        at = first._replace(offset=record.offset, append_ms=record.timestamp_ms, time_ms=time_ms)
        yield Kept(record.value, change, DONE, at, run.version)


def decided_records_of(run: DecidedRun) -> Iterator[DecidedRecord]:
    """The decisions of a run, one by one, as they would have been told without it."""
    return (single.decided_record() for single in kept_of(run))
