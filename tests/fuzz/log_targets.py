"""Values read from the log: single records by the codec, and whole partitions by their folds.

Any partition folds to the same state record by record and in runs, with or without a restart in between. A fold halts
only at a fold version that this program does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import msgspec
from fastavro import parse_schema, schemaless_reader

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import HEADER_BYTES, decode, encode
from eventstore.avro.released import released
from eventstore.errors import Undecodable
from eventstore.folding.fold import Fold, accepted_events
from eventstore.folding.ledger import LedgerEntry
from eventstore.folding.partition import FoldedPartition
from eventstore.log import CLIQUES, FLEET, INSTALLS, ZONES, Partition, Record
from eventstore.state_store.saver import load_partition, save
from eventstore.state_store.store import digest_bytes
from projections.cliques.fold import CliquesFold
from projections.fleet.fold import FleetFold
from projections.installs.fold import InstallsFold
from projections.zones.fold import ZonesFold
from tests.fuzz.framing import split
from tests.fuzz.mutators import event_mutated, history_mutated
from tests.fuzz.target import Target, check_refusal
from tests.support.delivered import all_of, ran
from tests.support.memory_disk import DiskStore
from tests.support.toy_records import LOG_ID, T0, created

PARTITIONS = 4
FOLDS: dict[str, Callable[[], Fold[Any]]] = {
    ZONES: ZonesFold,
    CLIQUES: CliquesFold,
    FLEET: partial(FleetFold, PARTITIONS),
    INSTALLS: InstallsFold,
}
_SCHEMAS = {schema.id: parse_schema(dict(schema.document)) for schema in released()}
_ORIGIN = encode(created())


def decodes(data: bytes) -> bool:
    """A record value: Undecodable, or an event that encodes and decodes to itself, and that fastavro decodes too."""
    try:
        event = decode(data)
    except Undecodable as error:
        check_refusal(error)
        return False
    written = encode(event)
    assert decode(written) == event
    assert encode(decode(written)) == written
    schema = _SCHEMAS[int.from_bytes(data[1:HEADER_BYTES], "big")]
    found: Any = schemaless_reader(BytesIO(data[HEADER_BYTES:]), schema, None)
    assert found == msgspec.structs.asdict(event) | {"envelope": msgspec.structs.asdict(event.envelope)}
    return True


def partition(topic: str) -> FoldedPartition:
    """An empty partition of this topic, with the current fold."""
    return FoldedPartition(Partition(topic, 0), {1: FOLDS[topic]()}, LOG_ID, is_deciding=topic in TOPICS.deciding)


def records_of(data: bytes) -> list[Record]:
    """The records that an input encodes, after the LogCreated of the test's log."""
    records, now_ms = [Record(0, T0, b"", _ORIGIN)], T0
    for offset, part in enumerate(split(data), start=1):
        now_ms = max(0, now_ms + 100 * part.number)
        records.append(Record(offset, now_ms, b"key", part.content))
    return records


def folds(topic: str, data: bytes) -> bool:
    """A whole partition. Accepted if any record took effect."""
    records = records_of(data)
    folded = partition(topic)
    for record in records:
        entry = folded.fold(record)
        if entry is not None:
            _check_outcome(entry, record)
    assert not folded.halted or folded.halted.startswith("the log requires fold version"), folded.halted
    # Each of these checks doubles the cost, so it runs for half of the inputs.
    other = _in_runs if len(data) % 2 else _with_restart
    assert all_of(other(topic, records)) == all_of(folded)
    return any(table.rows != empty.rows for table, empty in zip(folded.tables, partition(topic).tables, strict=True))


def _check_outcome(entry: LedgerEntry, record: Record) -> None:
    outcome = entry.outcome
    assert (outcome.code == "refused") <= bool(outcome.reason)
    for reason in filter(None, (outcome.reason, *(item.reason for item in outcome.items))):
        check_refusal(reason)
    assert len(msgspec.msgpack.encode(outcome)) <= 4_096 + 64 * len(record.value)


def _in_runs(topic: str, records: Sequence[Record]) -> FoldedPartition:
    folded, start = partition(topic), 0
    while start < len(records):
        start, _ = folded.fold_next(records, start, len(records))
    return folded


def _with_restart(topic: str, records: Sequence[Record]) -> FoldedPartition:
    """Save after half of the records, load the saved state, and fold the rest."""
    store, before, after = DiskStore(), partition(topic), partition(topic)
    half = len(records) // 2 + 1
    for record in records[:half]:
        before.fold(record)
    if before.halted:
        return before
    ran(save(before, store))
    found = ran(load_partition(after, store))
    assert found is after, "the saved state was not loaded"
    assert digest_bytes(after.digest) == digest_bytes(before.digest)
    for record in records[half:]:
        after.fold(record)
    return after


TARGETS = (
    Target("codec", decodes, event_mutated, max_bytes=2_048),
    *(
        Target(
            f"fold-{topic}", partial(folds, topic), partial(history_mutated, sorted(accepted_events([make()]))), 8_192
        )
        for topic, make in FOLDS.items()
    ),
)
