"""A partition as a log delivers it: commands arrive twice or late, replicas crash and load a saved state.

One replica answers and crashes. Its state must equal that of a replica that folds the whole log in runs, and that of a
replica that received no copy of a command.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

import msgspec

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode, encode
from eventstore.folding.fold import Fold, Outcome, RecordMetadata
from eventstore.folding.hashes import value_digest
from eventstore.folding.ledger import Ledger, LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import internal_envelope, uuid7
from eventstore.log import Partition, Record
from eventstore.state_store.saver import load_partition, save
from schemas.events import Event, FoldVersionUpgraded
from tests.support.memory_disk import DiskStore
from tests.support.toy_records import LOG_ID, created

T = TypeVar("T")


class Delivered:
    """The records of one partition, and the replica that answers. The caller gives offsets and times."""

    def __init__(self, partition: Partition, fold: Fold[Any], now_ms: int, before: Sequence[Fold[Any]] = ()) -> None:
        """`before` are the earlier versions of the fold: the log begins with its upgrade."""
        self.partition = partition
        self.records = [Record(0, now_ms, b"log", encode(created()))]
        self.commands: list[tuple[Record, LedgerEntry]] = []
        self._fold = fold
        self._versions = {each.version: each for each in (*before, fold)}
        self._store = DiskStore()
        self._rng = Random(1)
        self.folded = self._empty()
        self.folded.fold(self.records[0])
        if before:
            upgrade = FoldVersionUpgraded(internal_envelope("fold", "test", now_ms), fold.version)
            self.records.append(Record(1, now_ms, b"fold", encode(upgrade)))
            self.folded.fold(self.records[1])

    def _empty(self) -> FoldedPartition:
        return FoldedPartition(self.partition, self._versions, LOG_ID, is_deciding=self._fold.topic in TOPICS.deciding)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.records)

    def issue(self, event: Event, now_ms: int) -> tuple[Event, RecordMetadata, Outcome]:
        """Append a command under a new id, or a statement of the plane. Returns event, metadata and outcome."""
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
        """The outcome of a statement, computed before it is folded: a statement has no id and so no ledger entry."""
        return self._fold.decide(self.folded.state, event, at).outcome

    def _append(self, record: Record) -> LedgerEntry | None:
        self.records.append(record)
        entry = self.folded.fold(record)
        assert not self.folded.halted, self.folded.halted
        return entry

    def deliver_again(self, which: int, now_ms: int) -> bool:
        """Append a copy of an earlier command. Its entry is that of the first copy, or a refusal as expired, and no row
        changes. Returns whether the ledger still had the first entry.
        """
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
        """Append a different command under the id of an earlier one: it is refused and no row changes."""
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
        """Drop all unsaved state, and fold again from the last save; the number of records folded again."""
        before = all_of(self.folded)
        found = ran(load_partition(self._empty(), self._store)) or self._empty()
        tail = self.records[found.position :]
        for record in tail:
            found.fold(record)
        self.folded = found
        assert all_of(found) == before
        return len(tail)

    def check_replicas(self) -> None:
        """Compare with a replica that folds the whole log in runs, and with one that receives no copy."""
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
    """The saved part of a partition's state."""
    return {table.name: dict(sorted(table.rows.items())) for table in folded.tables}


def all_of(folded: FoldedPartition) -> dict[str, object]:
    """The state on which two replicas must agree."""
    ledger: Ledger = folded.ledger
    head = (folded.position, folded.time_ms, folded.version, folded.running, folded.quarantined, folded.halted)
    entries, *used = ledger.state()
    return {"rows": rows_of(folded), "ids": entries, "used": used, "head": head}


def ran(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that only yields to the loop."""
    while True:
        try:
            steps.send(None)
        except StopIteration as stopped:
            found: T = stopped.value
            return found
