"""The log folded afresh by the production folds alone, with every step stored for the checkers.

A step is one record with its decision, the rows that it changed, and the digests after it. The steps are the reference
for everything that replicas answered, saved, sent and forwarded during faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode
from eventstore.errors import Undecodable
from eventstore.folding.decision_listener import DecisionListener
from eventstore.folding.fold import Fold, fold_time
from eventstore.folding.hashes import MODULUS, row_hash
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition, Record
from eventstore.replicas.replica import Answer
from eventstore.state_store.store import digest_bytes
from schemas.events import Event

_ROWS = msgspec.msgpack.Encoder(order="deterministic")


class Step(NamedTuple):
    """One record and the result of its fold. `rows` are the rows that it changed."""

    partition: Partition
    record: Record
    event: Event | None
    answer: Answer | None
    rows: dict[str, list[tuple[str, Any]]]
    digest: bytes
    running: bytes

    @property
    def position(self) -> int:
        return self.record.offset + 1


class Halted(Exception):
    """A fold halted before the end of the log."""


After = Callable[[FoldedPartition, Step], None]


def refold(
    partition: Partition,
    records: Sequence[Record],
    versions: Mapping[int, Fold[Any]],
    log_id: str,
    after: Iterable[After] = (),
    *,
    listener: DecisionListener | None = None,
) -> tuple[FoldedPartition, list[Step]]:
    """Fold these records of a partition under the versions of its fold.

    `after` is called after each record, `listener` with each decision.
    """
    is_deciding = partition.topic in TOPICS.deciding
    folded = FoldedPartition(partition, versions, log_id, listener, is_deciding=is_deciding)
    digests = Digests()
    digests.add_changed_rows(folded)
    steps = []
    observers = list(after)
    for record in records:
        time_ms = fold_time(folded.time_ms, record.timestamp_ms)
        if time_ms < folded.time_ms:  # changes caused by a corrected clock do not belong to this record
            folded.rewind(time_ms)
            digests.add_changed_rows(folded)
        entry = folded.fold(record)
        if folded.halted:
            raise Halted(f"{partition}: the fold halts at {record.offset}: {folded.halted}")
        rows = digests.add_changed_rows(folded)
        answer = Answer(entry.outcome, partition, entry.offset) if entry else None
        step = Step(partition, record, event_of(record), answer, rows, digest_bytes(digests.total), folded.running)
        steps.append(step)
        for observe in observers:
            observe(folded, step)
    return folded, steps


def event_of(record: Record) -> Event | None:
    """The event in a record; None if the record contains none."""
    try:
        return decode(record.value)
    except Undecodable:
        return None


class Digests:
    """The digest of a partition's rows, updated row by row."""

    def __init__(self) -> None:
        self.total = 0
        self._hashes: dict[tuple[str, str], int] = {}

    def add_all_rows(self, folded: FoldedPartition) -> None:
        """Add all rows of a partition that has not changed since it was loaded."""
        for table in folded.state.tables:
            for key, row in table.rows.items():
                self._put(table.name, key, row)

    def add_changed_rows(self, folded: FoldedPartition) -> dict[str, list[tuple[str, Any]]]:
        """Add the rows changed since the last call, by table."""
        drained = {table: [*chain(*table.drain())] for table in folded.state.tables}
        rows = {
            table.name: list(zip(keys, table.get_many(keys), strict=True)) for table, keys in drained.items() if keys
        }
        for table, changes in rows.items():
            for key, row in changes:
                self._put(table, key, row)
        return rows

    def _put(self, table: str, key: str, row: Any) -> None:
        new = 0 if row is None else row_hash(table, key, _ROWS.encode(row))
        self.total = (self.total + new - self._hashes.get((table, key), 0)) % MODULUS
        self._hashes[table, key] = new
