"""A decision as it is kept until it is written: its event stays encoded, for decoded it takes five times the memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from eventstore.avro.codec import decode
from eventstore.folding.fold import DONE, At, Outcome
from eventstore.folding.listening import Ruling, RunRuling


class Kept(NamedTuple):
    """One decision; `value` is that of the record."""

    value: bytes
    change: Any
    outcome: Outcome
    at: At
    version: int

    def ruling(self) -> Ruling:
        """As it was told."""
        return Ruling(decode(self.value), self.change, self.outcome, self.at, self.version, self.value)


def kept(ruling: Ruling) -> Kept:
    """A decision, without its event."""
    return Kept(ruling.value, ruling.change, ruling.outcome, ruling.at, ruling.version)


def kept_of(run: RunRuling) -> Iterator[Kept]:
    """The decisions of a run, one by one."""
    first = run.first
    times_ms = accumulate((record.timestamp_ms for record in run.records), max, initial=first.time_ms)
    next(times_ms)
    changes = run.fold.changes_of_run(run.change)
    for record, change, time_ms in zip(run.records, changes, times_ms, strict=True):
        at = first._replace(offset=record.offset, append_ms=record.timestamp_ms, time_ms=time_ms)
        yield Kept(record.value, change, DONE, at, run.version)


def rulings_of(run: RunRuling) -> Iterator[Ruling]:
    """The decisions of a run, one by one, as they would have been told without it."""
    return (single.ruling() for single in kept_of(run))
