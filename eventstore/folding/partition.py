"""One partition as folded so far: the steps that all folds share, in the order of a record's path.

A record is hashed. It is decoded, or quarantined if this fold version does not accept it. It is checked against the
version gate and, if it is a command, against the ledger of ids. Then it is decided and evolved. Apart from log lines
this is a pure function of the records, so every replica and every replay ends in the same state, digests and
quarantine.

An exception in a fold halts this partition only. The partition's position stays before the record at fault. The state
is not saved after that, because the record may be half applied in memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eventstore.avro.codec import HEADER_BYTES, accepted_headers, decode
from eventstore.errors import Undecodable
from eventstore.folding.command_digest import command_digest
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun, DecisionListener
from eventstore.folding.fold import (
    DONE,
    Decision,
    Fold,
    MigratingFold,
    Outcome,
    RecordMetadata,
    RunFold,
    TimedFold,
    fold_time,
    normalize,
)
from eventstore.folding.hashes import record_hash, running_hash, value_digest
from eventstore.folding.ledger import Ledger, LedgerEntry
from eventstore.folding.origin import check_origin
from eventstore.folding.runs import MARK_RECORDS, RUN_RECORDS_MIN, RunProbe, fold_run, run_end
from eventstore.folding.state_table import StateTable
from eventstore.log import Partition, Record
from schemas.events import Event, FoldVersionUpgraded, LogCreated

FIRST_VERSION = 1
"""The fold version of every partition until a FoldVersionUpgraded."""

PLANE_EVENTS = frozenset({LogCreated.__name__, FoldVersionUpgraded.__name__})
"""Event types that are accepted under every fold version. This module handles them; a fold never sees them."""
_QUARANTINE_SHOWN = 16
_REASON_SHOWN = 500

logger = logging.getLogger(__name__)


class Quarantined(NamedTuple):
    """A record that the fold version does not accept. Every replica skips it."""

    offset: int
    content: str
    reason: str


class _Halt(Exception):
    """This binary cannot fold further records; the record is not at fault."""


class FoldedPartition:
    """State, ledger and position of one partition. Fold every record of it, in order, with `fold`."""

    def __init__(
        self,
        partition: Partition,
        versions: Mapping[int, Fold[Any]],
        log_id: str = "",
        listener: DecisionListener | None = None,
        *,
        is_deciding: bool = True,
    ) -> None:
        self.partition = partition
        self.listener = listener
        self.log_id = log_id
        self.is_deciding = is_deciding
        self.versions = versions
        self.state: Any = None
        self._dropped_tables: list[StateTable[Any]] = []
        self.ledger = Ledger()
        self.position = 0
        self.time_ms = 0
        self.running = bytes(16)
        self.first = b""
        self._last: Record | tuple[int, bytes] = (-1, b"")
        self.digest = 0
        self.saved_position = 0
        self.marks: deque[tuple[int, bytes]] = deque(maxlen=16)
        self.quarantined = 0
        self.quarantine: deque[Quarantined] = deque(maxlen=_QUARANTINE_SHOWN)
        self.halted = ""
        self._runs = RunProbe()
        self.begin(FIRST_VERSION)

    def begin(self, version: int) -> None:
        """Start with an empty state of this fold version. Halts if this binary does not support it."""
        self.state = self.versions.get(version, self.versions[max(self.versions)]).initial_state(self.partition)
        self._use_version(version)

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        """All tables to save: those of the state, and those that a migration dropped."""
        return (*self.state.tables, *self._dropped_tables)

    def is_saved(self) -> bool:
        """Whether the saved state is that of the present position. An empty partition has nothing to save."""
        return self.position == self.saved_position

    def _use_version(self, version: int) -> None:
        self.version = version
        fold = self.versions.get(version)
        if fold is None:
            self.halt(
                f"fold version {version} is not supported: this binary supports {sorted(self.versions)}; upgrade it"
            )
            return
        self._fold = fold
        self._admitted = accepted_headers(fold.accepts | PLANE_EVENTS)
        self._run_fold = fold if isinstance(fold, RunFold) else None
        (self._run_header,) = accepted_headers({self._run_fold.run_of}) if self._run_fold else (b"",)

    def halt(self, reason: str) -> None:
        """Stop folding this partition. The reason is truncated: an exception may quote a whole record, and beacons
        repeat the reason.
        """
        self.halted = reason = reason[:_REASON_SHOWN]
        logger.error(
            "partition halted", extra={"partition": self.partition, "position": self.position, "reason": reason}
        )

    def fold(self, record: Record) -> LedgerEntry | None:
        """Fold one record; returns the outcome if it is a command. Raises LogMismatch if it belongs to another log."""
        assert record.offset >= self.position, "the log went backwards"
        if self.halted:
            return None
        if self.is_deciding and not self.first:
            check_origin(self.partition, record, self.log_id)
        offset, append_ms, _, value, _ = record
        content = value_digest(value)
        time_ms = fold_time(self.time_ms, append_ms)
        try:
            if time_ms < self.time_ms:
                self.rewind(time_ms)
            entry = self._apply(value, content, RecordMetadata(self.partition, offset, append_ms, time_ms))
        except _Halt as halt:
            self.halt(str(halt))
            return None
        except Exception as error:
            logger.exception(
                "partition halted by an exception in the fold of a record",
                extra={"partition": self.partition, "offset": offset},
            )
            self.halt(f"offset {offset}: {type(error).__name__}: {error}")
            return None
        self.first = self.first or record_hash(record)
        self._advance(offset, record, running_hash(self.running, record, content), time_ms)
        return entry

    def fold_next(self, records: Sequence[Record], start: int, end: int) -> tuple[int, list[LedgerEntry]]:
        """Fold the record at index `start`, or a run of records from there on that ends before index `end`.

        Returns the index of the next record, and the outcomes of the commands that were folded. Raises the errors of
        `fold`.
        """
        first = records[start]
        if first.value[:HEADER_BYTES] == self._run_header and first.offset >= self._runs.from_offset and self.first:
            stop = run_end(self._run_header, self.time_ms, records, start, end)
            if stop - start >= RUN_RECORDS_MIN:
                entries = self._fold_run(records[start:stop])
                if self.halted:
                    return stop, []
                self._runs.record_result(len(entries or ()), records[start:stop])
                if entries:
                    return start + len(entries), entries
            else:
                self._runs.skip_past(records[max(start, stop - 1)])
        entry = self.fold(first)
        return start + 1, [] if entry is None else [entry]

    def _fold_run(self, records: Sequence[Record]) -> list[LedgerEntry] | None:
        """Fold the first of these records together, as one run. Returns their outcomes; None if no run begins here and
        the caller must fold the records one by one.
        """
        if self.halted or self._run_fold is None:
            return None
        assert records[0].offset >= self.position, "the log went backwards"
        offset, append_ms = records[0].offset, records[0].timestamp_ms
        first = RecordMetadata(self.partition, offset, append_ms, fold_time(self.time_ms, append_ms))
        try:
            run = fold_run(self._fold, self.state, self.ledger, records, running=self.running, first=first)
        except Exception as error:
            logger.exception(
                "partition halted by an exception in the fold of several records",
                extra={"partition": self.partition, "offset": offset},
            )
            self.halt(f"run from offset {offset}: {type(error).__name__}: {error}")
            return []
        if run is None:
            return None
        records = records[: len(run.entries)]
        if self.listener is not None:
            self.listener.on_decision(DecidedRun(records, self._run_fold, run.change, first, self.version))
        self._advance(offset, records[-1], run.running, run.time_ms)
        return run.entries

    def _advance(self, offset: int, last: Record, running: bytes, time_ms: int) -> None:
        """Advance the position to after `last`. The folded records begin at `offset`. A mark of the running hash
        (MARK_RECORDS) may lie before the first of them, but not between two of them.
        """
        if offset // MARK_RECORDS != (self.position - 1) // MARK_RECORDS:
            self.marks.append((self.position, self.running))
        self.running = running
        self._last = last
        self.position = last.offset + 1
        self.time_ms = time_ms

    def last(self) -> tuple[int, bytes]:
        """Offset and digest of the last folded record; -1 and empty bytes if there is none."""
        if isinstance(self._last, Record):
            self._last = (self._last.offset, record_hash(self._last))
        return self._last

    def restore_last(self, offset: int, digest: bytes) -> None:
        """Set the last record that was folded before this partition was saved."""
        self._last = (offset, digest)

    def dry_run(self, event: Event, append_ms: int) -> Decision:
        """The decision about this event if it were the next record. Changes nothing."""
        at = RecordMetadata(self.partition, self.position, append_ms, fold_time(self.time_ms, append_ms))
        return normalize(self._fold.decide(self.state, event, at))

    def changed_rows(self) -> int:
        """Number of rows that changed since the last save."""
        return sum(table.changes() for table in self.tables)

    def rewind(self, time_ms: int) -> None:
        """Rewind the state, because the fold time goes back to `time_ms`. Idempotent."""
        if isinstance(self._fold, TimedFold):
            self._fold.rewind(self.state, time_ms)
        about = {"partition": self.partition, "position": self.position, "back_ms": self.time_ms - time_ms}
        logger.warning("fold time set back: earlier records were stamped by a clock that was ahead", extra=about)

    def _apply(self, value: bytes, content: bytes, at: RecordMetadata) -> LedgerEntry | None:
        if value[:HEADER_BYTES] not in self._admitted:
            self._quarantine(at, content, f"event type not accepted by fold version {self.version}")
            return None
        try:
            event = decode(value)
        except Undecodable as error:
            self._quarantine(at, content, str(error))
            return None
        if type(event) is LogCreated:  # the first was checked; the others are late copies of it
            return None
        envelope = event.envelope
        if not envelope.command_id:
            self._decide(event, at, value)
            return None
        body = command_digest(event, content)
        entry = self.ledger.admit(envelope, body, at)
        if entry is None:
            entry = LedgerEntry(body, self._decide(event, at, value), at.offset)
            self.ledger.remember(envelope, entry, at.time_ms)
        elif self.listener is not None and entry.offset == at.offset:  # the id was refused, or the record is a copy
            self.listener.on_decision(DecidedRecord(event, None, entry.outcome, at, self.version, value))
        return entry

    def _decide(self, event: Event, at: RecordMetadata, value: bytes) -> Outcome:
        version = self.version
        if type(event) is FoldVersionUpgraded:
            change, outcome = None, self._upgrade(event.version, at)
        else:
            change, outcome = normalize(self._fold.decide(self.state, event, at))
            if change is not None:
                self._fold.evolve(self.state, change, at)
        if self.listener is not None:
            self.listener.on_decision(DecidedRecord(event, change, outcome, at, version, value))
        return outcome

    def _upgrade(self, version: int, at: RecordMetadata) -> Outcome:
        if version <= self.version:
            return Outcome("unchanged", f"version: {self.partition} already has fold version {self.version}")
        steps = range(self.version + 1, version + 1)
        if version not in self.versions or not self.versions.keys() >= set(steps):
            raise _Halt(
                f"the log requires fold version {version}, and this binary supports {sorted(self.versions)}; upgrade it"
            )
        for step in steps:
            fold = self.versions[step]
            if isinstance(fold, MigratingFold):
                self._migrate(fold.migrate(self.state, at), {table.name: table for table in self.tables})
        self._use_version(version)
        return DONE

    def _migrate(self, state: Any, before: dict[str, StateTable[Any]]) -> None:
        """Continue with this migrated state. Its new tables are saved in full; previous tables that it lacks are
        removed."""
        now = {table.name: table for table in state.tables}
        left = [StateTable(name, table.row_type) for name, table in before.items() if name not in now]
        for table in (*now.values(), *left):
            old = before.get(table.name)
            if old is None:
                table.touch([*table.rows])
            elif old is not table:
                unsaved = old.drain()
                table.touch([*table.rows, *old.rows, *unsaved.fresh, *unsaved.changed])
        self.state, self._dropped_tables = state, left

    def _quarantine(self, at: RecordMetadata, content: bytes, reason: str) -> None:
        self.quarantined += 1
        self.quarantine.append(Quarantined(at.offset, content.hex(), reason))
        if self.quarantined <= _QUARANTINE_SHOWN:
            about = {"partition": self.partition, "offset": at.offset, "content": content.hex(), "reason": reason}
            logger.warning("record quarantined: it cannot be decoded and has no effect", extra=about)
