"""A partition as a log delivers it: commands that come twice or late, replicas that crash and come back from a save.

One replica is asked, and crashes; what it says must be what a replica says that folds everything afresh, in runs, and
what one says that was never sent a copy.
"""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

import msgspec

from eventstore.avro.codec import decode, encode
from eventstore.folding.fold import Fold, Outcome, RecordMetadata
from eventstore.folding.hashes import value_digest
from eventstore.folding.ledger import Ledger, LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import uuid7
from eventstore.log import Partition, Record
from eventstore.state_store.saver import load_partition, save
from schemas.events import Event
from tests.support.kept_rows import KeptRows
from tests.support.toy_log import LOG_ID, created

T = TypeVar("T")


class Delivered:
    """The records of one partition, and the replica that is asked. Offsets and times are the caller's."""

    def __init__(self, partition: Partition, fold: Fold[Any], now_ms: int) -> None:
        self.partition = partition
        self.records = [Record(0, now_ms, b"log", encode(created()))]
        self.commands: list[tuple[Record, LedgerEntry]] = []
        self._fold = fold
        self._store = KeptRows()
        self._rng = Random(1)
        self.folded = self._empty()
        self.folded.fold(self.records[0])

    def _empty(self) -> FoldedPartition:
        return FoldedPartition(self.partition, {self._fold.version: self._fold}, LOG_ID)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.records)

    def issue(self, event: Event, now_ms: int) -> tuple[Event, RecordMetadata, Outcome]:
        """Append a command under an id of its own, or a statement of the plane; what was decided of it."""
        about = event.envelope
        if about.command_id:
            about = msgspec.structs.replace(about, command_id=uuid7(now_ms, self._rng), issued_at_ms=now_ms)
        event = msgspec.structs.replace(event, envelope=about)
        at = RecordMetadata(self.partition, self.end, now_ms, max(now_ms, self.folded.time_ms))
        record = Record(self.end, now_ms, b"key", encode(event))
        decided = self._decided(event, at) if not about.command_id else None
        entry = self._append(record)
        if entry is not None:
            self.commands.append((record, entry))
            decided = entry.outcome
        assert decided is not None
        return event, at, decided

    def _decided(self, event: Event, at: RecordMetadata) -> Outcome:
        """What will be decided of a statement, which has no id to remember it by."""
        return self._fold.decide(self.folded.state, event, at).outcome

    def _append(self, record: Record) -> LedgerEntry | None:
        self.records.append(record)
        entry = self.folded.fold(record)
        assert not self.folded.halted, self.folded.halted
        return entry

    def deliver_again(self, which: int, now_ms: int) -> bool:
        """A copy of an earlier command lands now: it is told what the first was, or that it is expired, and changes
        nothing. Whether it was still remembered."""
        record, first = self.commands[which % len(self.commands)]
        before = rows_of(self.folded)
        entry = self._append(Record(self.end, now_ms, record.key, record.value))
        assert entry is not None and rows_of(self.folded) == before
        if entry.offset == first.offset:
            assert entry == first
            return True
        assert entry.outcome.code == "refused" and "expired" in entry.outcome.reason
        return False

    def reuse_the_id(self, which: int, event: Event, now_ms: int) -> None:
        """Another command comes under the id of an earlier one: it is refused, and changes nothing."""
        record, _ = self.commands[which % len(self.commands)]
        said = msgspec.structs.replace(event.envelope, **_id_of(record))
        before = rows_of(self.folded)
        value = encode(msgspec.structs.replace(event, envelope=said))
        entry = self._append(Record(self.end, now_ms, b"key", value))
        assert entry is not None and rows_of(self.folded) == before
        assert value_digest(value) == value_digest(record.value) or entry.outcome.code == "refused"

    def save(self) -> None:
        ran(save(self.folded, self._store))

    def crash(self) -> int:
        """Everything that was not saved is gone, and folded again from there; how many records that was."""
        before = all_of(self.folded)
        found = ran(load_partition(self._empty(), self._store)) or self._empty()
        tail = self.records[found.position :]
        for record in tail:
            found.fold(record)
        self.folded = found
        assert all_of(found) == before
        return len(tail)

    def check_replicas(self) -> None:
        """The same from the whole log in runs, and without any copy."""
        afresh, start = self._empty(), 0
        while start < self.end:
            start, _ = afresh.fold_next(self.records, start, self.end)
        assert all_of(afresh) == all_of(self.folded)
        firsts = {record.offset for record, _ in self.commands}
        ids = {record.value for record, _ in self.commands}
        once = self._empty()
        for record in self.records:
            if record.offset in firsts or record.value not in ids:
                once.fold(record)
        assert rows_of(once) == rows_of(self.folded)


def _id_of(record: Record) -> dict[str, Any]:
    about = decode(record.value).envelope
    return {"command_id": about.command_id, "issued_at_ms": about.issued_at_ms}


def rows_of(folded: FoldedPartition) -> dict[str, dict[str, Any]]:
    """What the state of a partition is, as far as it is saved."""
    return {table.name: dict(sorted(table.rows.items())) for table in folded.tables}


def all_of(folded: FoldedPartition) -> dict[str, object]:
    """What two replicas must agree on."""
    ledger: Ledger = folded.ledger
    head = (folded.position, folded.time_ms, folded.version, folded.running, folded.quarantined, folded.halted)
    entries, *used = ledger.state()
    return {"rows": rows_of(folded), "ids": entries, "used": used, "head": head}


def ran(steps: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that only ever yields to the loop."""
    while True:
        try:
            steps.send(None)
        except StopIteration as stopped:
            found: T = stopped.value
            return found
