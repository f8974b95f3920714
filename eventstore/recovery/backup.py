"""A copy of a log in plain files, from which either engine can restore it.

Partitions grow during the copy, and their records refer to each other by offset. A record of fleet names the changes
that fleet has received from a zones partition. A record of a zones partition names the changes of fleet that caused it.
A copy with a reference to a missing record could not continue. The cut is therefore causally closed: fleet ends after
every record that the zones refer to, and the zones end after every record that fleet has received.

Each partition is one file of records. The manifest has the running hash of each partition. It is written last: a folder
without a manifest is not a backup. Beacons contain the same running hash, so a copy can be compared with a replica.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

import msgspec

from eventstore.avro.codec import decode
from eventstore.errors import LogMismatch, PermanentError, Undecodable
from eventstore.folding.hashes import running_hash, value_digest
from eventstore.log import (
    FLEET,
    FLEET_0,
    ZONES,
    EventLog,
    Headers,
    Partition,
    Record,
)
from eventstore.progress import ReportProgress
from eventstore.recovery.attestation import records_before
from schemas.events import MembershipChanged

FORMAT = 1
MANIFEST = "manifest.json"
_HEAD = struct.Struct(">qqIII")
_PARTITION = re.compile(r"([a-z]+)/([0-9]{1,6})")
_HEADERS = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...])
_BUFFER_BYTES = 1 << 20
_RECORD_BYTES_MAX = 64 << 20


class PartitionCopy(msgspec.Struct, frozen=True):
    """A copied partition: its offsets and append times, the number of records and bytes, the running hash."""

    begin: int
    end: int
    records: int
    bytes: int
    running: str
    last_ms: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a backup."""

    format: int
    log_id: str
    generation: int
    parent: str
    partition_count: int
    made_at_ms: int
    partitions: dict[str, PartitionCopy]


class ForwardedPositions:
    """Per partition of topic zones, the position up to which fleet has received its changes in the copied records."""

    def __init__(self) -> None:
        self.by_partition: dict[int, int] = {}

    def see(self, record: Record) -> None:
        """Take the next record of fleet. A MembershipChanged counts only if it begins where the last counted one of its
        zones partition ended: the fleet fold has the same rule.
        """
        try:
            event = decode(record.value)
        except Undecodable:
            return
        if isinstance(event, MembershipChanged) and event.from_offset == self.by_partition.get(
            event.cause_partition, 0
        ):
            self.by_partition[event.cause_partition] = event.to_offset


def file_of(folder: Path, partition: Partition) -> Path:
    """The file with the records of a partition."""
    return folder / f"{partition.topic}-{partition.number}.records"


async def copy(log: EventLog, folder: Path, report: ReportProgress) -> dict[str, PartitionCopy]:
    """Copy all partitions of events, cut so that no record refers to a missing one.

    The ends of the partitions are read first: those of topics that expire, then those of the other topics, that of
    fleet last. So fleet contains every record that the zones refer to. Fleet is then copied before the zones. If the
    copy of fleet refers to records after the end of a zones partition, that end moves to after these records.
    """
    kept, topics = log.topics.deciding, log.topics.with_events
    expiring = {p: await log.end(p) for topic in topics if topic not in kept for p in log.partitions(topic)}
    deciding = {p: await log.end(p) for topic in kept for p in log.partitions(topic) if p != FLEET_0}
    fleet = await log.end(FLEET_0)
    total = sum((*expiring.values(), *deciding.values(), fleet)) or 1
    forwarded, done = ForwardedPositions(), 0
    copied: dict[str, PartitionCopy] = {}
    for partition, seen in ({FLEET_0: fleet} | deciding | expiring).items():
        end = seen
        if partition.topic == ZONES:
            end = min(max(seen, forwarded.by_partition.get(partition.number, 0)), await log.end(partition))
        report(str(partition), done / total)
        see = forwarded.see if partition.topic == FLEET else None
        copied[str(partition)] = await _copy(log, partition, end, file_of(folder, partition), see)
        done += seen
    return copied


async def _copy(
    log: EventLog, partition: Partition, end: int, path: Path, see: Callable[[Record], None] | None
) -> PartitionCopy:
    begin = min(await log.begin(partition), end)
    running, count, next_offset, last_ms = bytes(16), 0, begin, 0
    is_kept = partition.topic in log.topics.deciding
    if is_kept and begin:
        raise LogMismatch(
            f"{partition} begins at offset {begin}: its first records are gone, so a backup could not be restored"
        )
    with path.open("wb", _BUFFER_BYTES) as file:
        async with aclosing(records_before(log, partition, end)) as records:
            async for record in records:
                if is_kept and record.offset != next_offset:
                    raise LogMismatch(
                        f"{partition}: record {next_offset} is missing, so a restore could not keep the offsets"
                    )
                write_record(file, record)
                running = running_hash(running, record, value_digest(record.value))
                count, next_offset, last_ms = count + 1, record.offset + 1, record.timestamp_ms
                if see is not None:
                    see(record)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    return PartitionCopy(begin, end, count, size, running.hex(), last_ms)


def write_record(file: BinaryIO, record: Record) -> None:
    """Write one record with all of its fields in the log."""
    headers = msgspec.msgpack.encode(record.headers) if record.headers else b""
    head = _HEAD.pack(record.offset, record.timestamp_ms, len(record.key), len(record.value), len(headers))
    file.write(b"".join((head, record.key, record.value, headers)))


def read_records(path: Path) -> Iterator[Record]:
    """Read the records of a file. Raises PermanentError if it ends within a record or is malformed."""
    with path.open("rb", _BUFFER_BYTES) as file:
        while head := file.read(_HEAD.size):
            sizes = _HEAD.unpack(head)[2:] if len(head) == _HEAD.size else ()
            body = file.read(sum(sizes)) if sum(sizes) <= _RECORD_BYTES_MAX else b""
            if not sizes or len(body) != sum(sizes):
                raise PermanentError(f"backup: {path} ends inside a record: the file is truncated")
            offset, timestamp_ms, key, value, _ = _HEAD.unpack(head)
            headers = _headers(path, body[key + value :])
            yield Record(offset, timestamp_ms, body[:key], body[key : key + value], headers)


def _headers(path: Path, packed: bytes) -> Headers:
    try:
        return _HEADERS.decode(packed) if packed else ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PermanentError(f"backup: {path} has a record with invalid headers: {error}") from error


def load_manifest(folder: Path) -> Manifest:
    """Read the manifest of the backup in this folder. Raises PermanentError."""
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError as error:
        raise PermanentError(f"backup: {folder} holds no backup: {path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last two are not DecodeErrors
        raise PermanentError(f"backup: {path} is not a valid manifest: {error}") from error
    if found.format != FORMAT:
        raise PermanentError(f"backup: {folder} has format {found.format}; this program reads format {FORMAT}")
    return found


def partition_named(text: str) -> Partition:
    """Parse a partition name of a manifest. Raises PermanentError for a name that no backup has."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise PermanentError(f"backup: {MANIFEST} names partition {text[:40]!r}, which no log has")
    return Partition(match[1], int(match[2]))


def check(folder: Path, manifest: Manifest, report: ReportProgress) -> None:
    """Raise PermanentError unless the records of every partition have the count and the hash in the manifest."""
    total, done = sum(each.bytes for each in manifest.partitions.values()) or 1, 0
    for name, copied in manifest.partitions.items():
        report(f"checking {name}", done / total)
        running, count = bytes(16), 0
        path = file_of(folder, partition_named(name))
        try:
            for record in read_records(path):
                running = running_hash(running, record, value_digest(record.value))
                count += 1
        except OSError as error:
            raise PermanentError(f"backup: {path} cannot be read: {error.strerror}") from error
        if (count, running.hex()) != (copied.records, copied.running):
            raise PermanentError(
                f"backup: {path} is damaged: it has {count} records with hash {running.hex()}, "
                f"and the manifest says {copied.records} with hash {copied.running}"
            )
        done += copied.bytes
