"""Preview of an upgrade of fold versions: the log is folded to its end, then upgraded in this process only.

The decisions of later rules about future records are not predicted. A version that stores its state differently may
change rule tables when it migrates the state of the previous version. Rows of states are compared one by one. Rule
tables are compared by their digests, and prefix by prefix where the digests differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from eventstore.avro.codec import encode
from eventstore.folding.fold import Fold
from eventstore.folding.partition import FoldedPartition
from eventstore.ids import internal_envelope
from eventstore.log import FLEET, ZONES, EventLog, Partition, Record
from eventstore.recovery.replay import replay
from projections.fleet.state import FleetState
from projections.fleet.tables.zone_table import snapshot, table
from projections.rules.prefixes import networks
from projections.rules.rule import Rule
from schemas.events import FoldVersionUpgraded

SHOWN = 5

_ROW = msgspec.msgpack.Encoder(order="deterministic")

Rows = dict[str, dict[str, int]]
"""Hashes of a state's rows, by table and key."""

Prefixes = frozenset[tuple[Rule, str]]


class RowsChanged(NamedTuple):
    """Rows of one table of a partition's state that would be added, removed or changed; `keys` are the first few."""

    table: str
    total: int
    keys: tuple[str, ...]


class TableChanged(NamedTuple):
    """The change of a zone's rule table: the numbers of added and removed prefixes, and the first few of each."""

    zone: str
    added: int
    removed: int
    examples: tuple[str, ...]


class PartitionPreview(NamedTuple):
    """The preview of one partition: its fold versions and changes. `halted` if it cannot be folded."""

    partition: Partition
    from_version: int
    to_version: int
    rows: tuple[RowsChanged, ...]
    tables: tuple[TableChanged, ...]
    halted: str


async def preview_upgrade(
    log: EventLog, folds: Sequence[Fold[Any]], wanted: Mapping[str, int]
) -> list[PartitionPreview]:
    """Preview every partition of the topics in `wanted` at these versions. Raises LogUnavailable and LogMismatch."""
    folded = (await replay(log, folds)).partitions
    zones = sorted({zone for part, found in folded.items() if part.topic == ZONES for zone in found.state.zones()})
    return [
        _raise(found, wanted[partition.topic], zones)
        for partition, found in sorted(folded.items())
        if partition.topic in wanted and found.version < wanted[partition.topic]
    ]


def _raise(folded: FoldedPartition, version: int, zones: Sequence[str]) -> PartitionPreview:
    partition, before = folded.partition, folded.version
    if folded.halted:
        return PartitionPreview(partition, before, version, (), (), folded.halted)
    rows, tables = _rows(folded.state), _tables(folded, zones)
    event = FoldVersionUpgraded(internal_envelope(str(partition), "dry run", folded.time_ms), version)
    folded.fold(Record(folded.position, folded.time_ms, b"fold", encode(event)))
    changed = () if folded.halted else _rows_changed(rows, _rows(folded.state))
    differ = () if folded.halted else _tables_changed(tables, _tables(folded, zones))
    return PartitionPreview(partition, before, version, changed, differ, folded.halted)


def _rows(state: Any) -> Rows:
    return {
        table.name: {key: xxh3_64_intdigest(_ROW.encode(row)) for key, row in table.rows.items()}
        for table in state.tables
    }


def _rows_changed(before: Rows, after: Rows) -> tuple[RowsChanged, ...]:
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if keys:
            found.append(RowsChanged(name, len(keys), tuple(keys[:SHOWN])))
    return tuple(found)


def _tables(folded: FoldedPartition, zones: Sequence[str]) -> dict[str, tuple[bytes, Prefixes]]:
    """Digest and content of every zone's rule table, if this partition computes them."""
    if folded.partition.topic != FLEET:
        return {}
    state: FleetState = folded.state
    alike: dict[object, tuple[bytes, Prefixes]] = {}
    found = {}
    for zone in zones:
        now = table(state, zone)
        if now.key not in alike:
            alike[now.key] = (now.digest, _prefixes(state, zone))
        found[zone] = alike[now.key]
    return found


def _prefixes(state: FleetState, zone: str) -> Prefixes:
    steps = snapshot(state, zone).steps
    return frozenset((step.rule, str(net)) for step in steps for net in networks(step.add4, step.add6))


def _tables_changed(
    before: Mapping[str, tuple[bytes, Prefixes]], after: Mapping[str, tuple[bytes, Prefixes]]
) -> tuple[TableChanged, ...]:
    found = []
    for zone, (digest, old) in before.items():
        new_digest, new = after[zone]
        if new_digest != digest:
            added, removed = sorted(new - old), sorted(old - new)
            examples = [f"+ {_shown(*each)}" for each in added[:SHOWN]] + [
                f"- {_shown(*each)}" for each in removed[:SHOWN]
            ]
            found.append(TableChanged(zone, len(added), len(removed), tuple(examples)))
    return tuple(found)


def _shown(rule: Rule, prefix: str) -> str:
    ports = ",".join(f"{first}-{last}" for first, last in zip(rule.ports[::2], rule.ports[1::2], strict=True))
    return f"{prefix} {rule.action} {rule.protocol} {ports or 'all ports'} priority {rule.priority}"
