"""Folds a run of records together: consecutive commands of one type that all succeed, which is most of a log.

Folded one by one, a join takes a hundred small steps of Python, the same ones for each record. A run takes each step
for all of its records at once: hash, decode, ledger, decide, evolve. The result is the same as one by one, to the last
byte of state, ledger and running hash (a test compares them). A record is **plain** if a run may contain it: a command
of that type, without headers, that is done in full. A run ends before the first record that is not plain. If that is
found too late, nothing has been changed yet, and all records are folded one by one.

A run ends where work is due between two records: at a mark of the running hash, at the end of a minute of fold time
(old ids are forgotten then), and where fold time goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import lt, methodcaller
from typing import Any, NamedTuple

from eventstore.avro.codec import HEADER_BYTES, decode_columns
from eventstore.folding.fold import CLOCK_CORRECTION_MS, DONE, Fold, RecordMetadata, RunFold, fold_time
from eventstore.folding.hashes import running_hash_all, value_digest
from eventstore.folding.ledger import MINUTE_MS, Ledger, LedgerEntry
from eventstore.log import Record

RUN_RECORDS = 256
"""Maximum number of records in a run, about 1 ms of folding."""

RUN_RECORDS_MIN = 16
"""Minimum number of records in a run; folding fewer records one by one costs less."""

PAUSE_RECORDS_MIN = 64
PAUSE_RECORDS_MAX = 2_048
"""Limits of the pause, the number of records that are folded one by one after a run with few plain records. Each such
run doubles the pause; a run in which every record is plain halves it. A failed attempt at a run costs as much as
folding a hundred records, so the attempts cost at most a twentieth in a log without plain records.
"""

RUN_RECORDS_PLAIN = 64
"""An attempt at a run with fewer plain records costs more than it saves."""

MARK_RECORDS = 1_024
"""Offsets between two marks. Replicas compare running hashes at marks, as they are rarely at the same position."""


class Run(NamedTuple):
    """The result of a run: its change, the outcome per command, and the running hash and fold time after its end."""

    change: Any
    entries: list[LedgerEntry]
    running: bytes
    time_ms: int


class RunProbe:
    """Chooses the offset of the next attempt at a run, by the length of the last runs."""

    __slots__ = ("_pause_records", "from_offset")

    def __init__(self) -> None:
        self.from_offset = 0
        self._pause_records = PAUSE_RECORDS_MIN

    def skip_past(self, last: Record) -> None:
        """Try no run before this record, because too few consecutive records before it look plain."""
        self.from_offset = last.offset + 1

    def record_result(self, plain: int, records: Sequence[Record]) -> None:
        """Record that the first `plain` of these records were folded as a run."""
        if plain == len(records):
            self._pause_records = max(self._pause_records // 2, PAUSE_RECORDS_MIN)
        elif plain >= RUN_RECORDS_PLAIN:
            self.from_offset = records[plain].offset + 1
        else:
            self.from_offset = records[0].offset + self._pause_records
            self._pause_records = min(self._pause_records * 2, PAUSE_RECORDS_MAX)


def run_end(header: bytes, time_ms: int, records: Sequence[Record], start: int, end: int) -> int:
    """The end of the run that begins at `start`: after the last consecutive record that looks plain."""
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
    fold: Fold[Any], state: Any, ledger: Ledger, records: Sequence[Record], *, running: bytes, first: RecordMetadata
) -> Run | None:
    """Fold the leading plain records together. Returns None, without any change, if they cannot be folded as a run.

    `running` is the running hash before them.
    """
    assert isinstance(fold, RunFold), "only a fold with runs is asked for one"
    time_ms = first.time_ms
    offsets, append_ms, keys, values, _ = zip(*records, strict=True)
    assert all(map(lt, offsets, offsets[1:])), "the log went backwards"
    run = decode_columns(values)
    if run is None or not ledger.admits_all(run.ids, run.issued_ms, append_ms, time_ms):
        return None
    decision = fold.decide_run(state, run, offsets, append_ms, time_ms)
    if decision is None:
        return None
    change, count = decision
    append_ms = append_ms[:count]
    contents = list(map(value_digest, values[:count]))
    entries = list(map(LedgerEntry, contents, repeat(DONE), offsets))
    fold.evolve(state, change, first)
    ledger.remember_all(run.ids[:count], entries, time_ms)
    running = running_hash_all(running, offsets[:count], append_ms, keys[:count], contents)
    return Run(change, entries, running, max(time_ms, *append_ms))
