"""Partitions that pin folds: their histories, with records that any partition may contain, and their stored form."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from eventstore.avro.codec import decode, encode
from eventstore.folding.ledger import AHEAD_MS, KEEP_MS, LATE_MS
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, FLEET, INSTALLS, RESOURCES, ZONES, Record
from schemas.events import Event, FoldVersionUpgraded, LogCreated
from tests.support.pinned import cliques, fleet, installs, resources, zones
from tests.support.toy_records import POISON

HISTORIES: dict[str, Callable[[], list[Record]]] = {
    ZONES: zones.records,
    FLEET: fleet.records,
    CLIQUES: cliques.records,
    INSTALLS: installs.records,
    RESOURCES: resources.records,
}
"""The records of a new log by topic. They depend on the present folds, so a pinned log is written only once, when its
fold version is pinned.
"""


def made(topic: str) -> list[Record]:
    """A new log of a topic."""
    records = HISTORIES[topic]()
    _besides(records)
    return records


def write(path: Path, records: list[Record]) -> None:
    """Write a log to its file."""
    path.write_bytes(gzip.compress(msgspec.msgpack.encode(records), mtime=0))


def read(path: Path) -> list[Record]:
    """Read a log from its file."""
    return msgspec.msgpack.decode(gzip.decompress(path.read_bytes()), type=list[Record])


def _besides(records: list[Record]) -> None:
    """Records common to all folds: copies, ids that are reused, late, early or absent; versions; poison."""
    rng, now_ms = Random(1), records[-1].timestamp_ms

    def land(value: bytes | Event, later_ms: int = 1) -> None:
        nonlocal now_ms
        now_ms += later_ms
        content = value if isinstance(value, bytes) else encode(value)
        records.append(Record(len(records), now_ms, b"key", content))

    def said(issued_ms: int) -> FoldVersionUpgraded:
        return FoldVersionUpgraded(envelope("fold", "?test", uuid7(issued_ms, rng)), 1)

    first = said(now_ms)
    land(first)
    land(first)
    land(replace(first, version=0))
    land(replace(first, envelope=replace(first.envelope, issued_at_ms=now_ms - 5)))
    land(replace(first, envelope=replace(first.envelope, command_id="id")))
    land(said(now_ms + AHEAD_MS + 2))
    land(said(now_ms - LATE_MS))
    land(records[0].value)
    land(POISON)
    land(b"")
    land(first, 2 * KEEP_MS)
    assert isinstance(decode(records[0].value), LogCreated)
