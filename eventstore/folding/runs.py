"""Folds a run of records together: consecutive commands of one type that all succeed, which is most of a log.

Folded one by one, a join takes a hundred small steps of Python, the same ones for each record. A run takes each step
for all of its records at once: hash, decode, ledger, decide, evolve. The result is the same as one by one, to the last
byte of state, ledger and running hash (a test compares them). When a record does not qualify, the run ends before it,
or is folded one by one; nothing has been changed by then.

A run ends where work is due between two records: at a mark of the running hash, at the end of a minute of fold time
(old ids are forgotten then), and where fold time goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import lt, methodcaller
from typing import Any, NamedTuple

from eventstore.avro.codec import HEADER_BYTES
from eventstore.folding.fold import CLOCK_CORRECTION_MS, DONE, RunFold, fold_time
from eventstore.folding.hashes import running_hash_all, value_digest
from eventstore.folding.ledger import MINUTE_MS, Ledger, LedgerEntry
from eventstore.log import Record

RUN_RECORDS = 256
"""About 1 ms of folding."""

RUN_RECORDS_MIN = 5
"""What is fewer costs less one by one."""

PAUSE_RECORDS_MIN = 64
PAUSE_RECORDS_MAX = 2_048
"""After a run that was hardly plain so many are folded one by one, twice as many each time: reading a run in vain costs
as much as a hundred records, so that is a twentieth in a log whose runs never are."""

RUN_RECORDS_PLAIN = 64
"""What is shorter was not worth reading a whole run for."""

MARK_RECORDS = 1_024
"""Replicas compare running hashes at these steps of offsets, as they are never at one position for long."""


class Run(NamedTuple):
    """What a run came to: its change, what was decided of each command, and the running hash and fold time after the
    last."""

    change: Any
    entries: list[LedgerEntry]
    running: bytes
    time_ms: int


class RunProbe:
    """From which offset on the next run is tried, by how long the last runs were."""

    __slots__ = ("_pause_records", "from_offset")

    def __init__(self) -> None:
        self.from_offset = 0
        self._pause_records = PAUSE_RECORDS_MIN

    def skip_past(self, last: Record) -> None:
        """Up to this record, too few records in a row looked plain."""
        self.from_offset = last.offset + 1

    def record_result(self, plain: int, records: Sequence[Record]) -> None:
        """The first `plain` of these records were folded as a run."""
        if plain == len(records):
            self._pause_records = max(self._pause_records // 2, PAUSE_RECORDS_MIN)
        elif plain >= RUN_RECORDS_PLAIN:
            self.from_offset = records[plain].offset + 1
        else:
            self.from_offset = records[0].offset + self._pause_records
            self._pause_records = min(self._pause_records * 2, PAUSE_RECORDS_MAX)


def run_end(header: bytes, time_ms: int, records: Sequence[Record], start: int, end: int) -> int:
    """Where the run ends that begins at `start`: behind the last record in a row that looks plain."""
    for index in range(start, min(end, start + RUN_RECORDS_MIN)):
        if records[index].value[:HEADER_BYTES] != header:
            return index
    if end - start < RUN_RECORDS_MIN:
        return end
    first = records[start]
    next_mark = (first.offset // MARK_RECORDS + 1) * MARK_RECORDS
    end = min(end, start + RUN_RECORDS)
    next_minute_ms = (fold_time(time_ms, first.timestamp_ms) // MINUTE_MS + 1) * MINUTE_MS
    offsets, appended_ms, _, values, headers = zip(*records[start:end], strict=True)
    is_in_time = max(appended_ms) < next_minute_ms and min(appended_ms) >= next_minute_ms - CLOCK_CORRECTION_MS
    is_whole = offsets[-1] < next_mark and is_in_time and time_ms < next_minute_ms and not any(headers)
    if is_whole and all(map(methodcaller("startswith", header), values)):
        return end
    for index in range(start, end):
        offset, append_ms, _, value, headers = records[index]
        if offset >= next_mark or append_ms >= next_minute_ms or headers or value[:HEADER_BYTES] != header:
            return index
        if fold_time(time_ms, append_ms) < time_ms:
            return index
        time_ms = max(time_ms, append_ms)
    return end


def fold_run(
    fold: RunFold, state: Any, ledger: Ledger, records: Sequence[Record], *, running: bytes, time_ms: int
) -> Run | None:
    """Fold the first of these records, as many as are plain; None, and nothing has changed, if that is unclear.

    The running hash is the one before them, the fold time that of the first.
    """
    offsets, append_ms, keys, values, _ = zip(*records, strict=True)
    assert all(map(lt, offsets, offsets[1:])), "the log went backwards"
    commands = fold.read_run(values)
    if commands is None or not ledger.admits_all(commands, append_ms, time_ms):
        return None
    decision = fold.decide_run(state, commands, offsets, append_ms, time_ms)
    if decision is None:
        return None
    change, count = decision
    append_ms = append_ms[:count]
    contents = list(map(value_digest, values[:count]))
    entries = list(map(LedgerEntry, contents, repeat(DONE), offsets))
    fold.evolve_run(state, change)
    ledger.remember_all(commands.ids[:count], entries, time_ms)
    running = running_hash_all(running, offsets[:count], append_ms, keys[:count], contents)
    return Run(change, entries, running, max(time_ms, *append_ms))
