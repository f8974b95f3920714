"""Restores a log from a backup: a new generation, with every record at its offset.

The first record of each deciding partition is replaced. The replacement has the id and the generation of the new log,
and the position up to which the new log has the records of its parent. So nothing takes a state, position or table of
the parent for one of the new log. A DPU that has seen newer records of the parent can be distinguished from a DPU that
lags (replicas/lineage). All other records keep their bytes, offsets and append times, by which the folds decide. Topics
that expire get new offsets, as no record refers to them.

An interrupted restore leaves nothing that a process would open as a log. In RocksDB the folder gets its name at the
end. On Kafka the topics are set to accept append times from the client, and a plane refuses such topics until the
setting is reverted.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from rocksdict import AccessType

from eventstore.avro.codec import encode
from eventstore.bounded_batches import bounded_batches
from eventstore.embedded.rocks import LogRow, Rocks, RocksError, open_rocks
from eventstore.errors import FatalError, LogUnavailable, PermanentError
from eventstore.ids import internal_envelope, uuid7
from eventstore.kafka.admin import Admin
from eventstore.kafka.appender import RECORD_BYTES
from eventstore.kafka.clients import Clients, make_producer, reason
from eventstore.kafka.topics import create_topics, new_topics, replication_factor_of_new, wait_for_leaders
from eventstore.log import FLEET_0, Partition, Record, size_of
from eventstore.position import Position
from eventstore.progress import ReportProgress
from eventstore.recovery.backup import Manifest, file_of, partition_named, read_records
from eventstore.replicas.lineage import parent_text
from eventstore.topics import TopicTable
from schemas.events import LogCreated, WritesFrozen

_BATCH_RECORDS = 500
_BATCH_BYTES = 512 << 10
_ACKNOWLEDGED_S = 30.0
_MADE_S = 60.0
_AT_ONCE = 8
"""Partitions that are written concurrently."""
_STATED_TIME = {"message.timestamp.type": "CreateTime"}


class RestoreResult(NamedTuple):
    """The restored log."""

    origin: LogCreated
    records: int


class RestorePlan(NamedTuple):
    """The plan of a restore: its source, the first record of the log, and the record to append to fleet at the end."""

    topics: TopicTable
    folder: Path
    manifest: Manifest
    origin: LogCreated
    now_ms: int
    frozen: bool

    @property
    def partitions(self) -> list[Partition]:
        return sorted(map(partition_named, self.manifest.partitions))

    def records(self, partition: Partition) -> Iterator[Record]:
        """The records of a partition for the new log."""
        records = read_records(file_of(self.folder, partition))
        if partition.topic not in self.topics.deciding:
            return (record._replace(offset=place) for place, record in enumerate(records))
        if partition == FLEET_0 and self.frozen:
            records = chain(records, self._freeze())
        return map(self._with_origin, records)

    def _with_origin(self, record: Record) -> Record:
        return record._replace(value=encode(self.origin)) if record.offset == 0 else record

    def _freeze(self) -> Iterable[Record]:
        last = self.manifest.partitions[str(FLEET_0)]
        event = WritesFrozen(internal_envelope("*", "restore", self.now_ms), "")
        return [Record(last.end, max(last.last_ms, self.now_ms), b"", encode(event))]


def plan_restore(
    topics: TopicTable,
    folder: Path,
    manifest: Manifest,
    *,
    generation: int | None,
    frozen: bool,
    now_ms: int,
    rng: random.Random,
) -> RestorePlan:
    """Plan the restore of this backup. Raises PermanentError for a generation that is not newer than the backup's.

    The default generation is derived from the time. If it were the backup's generation plus one, two logs restored from
    one backup would have the same generation. A DPU that has seen the first log could not distinguish the second log
    from it, and nothing would show that the DPU is behind.
    """
    least = manifest.generation + 1
    if generation is not None and generation < least:
        raise PermanentError(
            f"generation: {generation} must be at least {least}: the backup is of generation {least - 1}"
        )
    ends = {
        partition: copied.end
        for name, copied in manifest.partitions.items()
        if (partition := partition_named(name)).topic in topics.deciding
    }
    said = internal_envelope("log", "restore", now_ms)
    old = LogCreated(said, manifest.log_id, manifest.generation, manifest.partition_count, manifest.parent)
    parent = parent_text(old, Position(manifest.log_id, ends))
    origin = LogCreated(said, uuid7(now_ms, rng), generation or max(least, now_ms), manifest.partition_count, parent)
    return RestorePlan(topics, folder, manifest, origin, now_ms, frozen)


def restore_to_folder(plan: RestorePlan, path: Path, report: ReportProgress) -> RestoreResult:
    """Restore to an embedded log in this folder, which must not exist. Blocks the thread; for CLI commands, not for a
    running plane.

    Raises FatalError on a disk error, PermanentError if the backup has changed since its check.
    """
    partial = path.with_name(f"{path.name}.restoring")
    shutil.rmtree(partial, ignore_errors=True)
    rocks = open_rocks(partial, AccessType.read_write())
    count = 0
    try:
        try:
            rocks.write_header(plan.manifest.partition_count)
            for done, partition in enumerate(plan.partitions):
                report(f"restoring {partition}", done / len(plan.partitions))
                count += _into_rocks(rocks, partition, plan.records(partition))
            rocks.sync()
        finally:
            rocks.close()
        partial.rename(path)
    except (RocksError, OSError) as error:
        raise FatalError(f"log directory {path} cannot be created: {error}") from error
    return RestoreResult(plan.origin, count)


def _into_rocks(rocks: Rocks, partition: Partition, records: Iterable[Record]) -> int:
    count = 0
    for batch in _batches(records):
        rocks.write([LogRow(partition, *each) for each in batch])
        count += len(batch)
    return count


async def restore_to_kafka(plan: RestorePlan, clients: Clients, prefix: str, report: ReportProgress) -> RestoreResult:
    """Restore to new topics, none of which may exist. Raises LogUnavailable, PermanentError, FatalError."""
    admin = Admin(clients)
    try:
        names = [f"{prefix}.{topic}" for topic in plan.topics.names]
        if found := await admin.topics(names):
            raise PermanentError(f"topic prefix: topic {min(found)} already exists; restore under another prefix")
        copies = await replication_factor_of_new(admin)
        topics = new_topics(plan.topics, prefix, plan.manifest.partition_count, copies)
        async with asyncio.timeout(_MADE_S):
            await create_topics(
                admin, [topic._replace(settings={**topic.settings, **_STATED_TIME}) for topic in topics]
            )
            await wait_for_leaders(admin, names)
        producer = await clients.started(make_producer)
        try:
            count = await _into_topics(plan, producer, prefix, report)
        finally:
            clients.discard(producer)
        await admin.alter(topics)
        return RestoreResult(plan.origin, count)
    except TimeoutError as error:
        raise LogUnavailable(f"topics {prefix}.* were not ready in {_MADE_S:.0f} s") from error
    finally:
        admin.close()


async def _into_topics(plan: RestorePlan, producer: AIOKafkaProducer, prefix: str, report: ReportProgress) -> int:
    free, done, counts = asyncio.Semaphore(_AT_ONCE), 0, 0

    async def write(partition: Partition) -> None:
        nonlocal done, counts
        async with free:
            counts += await _into_topic(producer, f"{prefix}.{partition.topic}", partition, plan.records(partition))
        done += 1
        report(f"restored {partition}", done / len(plan.partitions))

    try:
        async with asyncio.TaskGroup() as tasks:
            for partition in plan.partitions:
                tasks.create_task(write(partition))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return counts


async def _into_topic(producer: AIOKafkaProducer, topic: str, partition: Partition, records: Iterable[Record]) -> int:
    count = 0
    for batch in _batches(records):
        builder = producer.create_batch()
        for record in batch:
            added = builder.append(
                timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
            )
            assert added is not None, "a batch was larger than we reckoned"
        try:
            async with asyncio.timeout(_ACKNOWLEDGED_S):
                sent = await (await producer.send_batch(builder, topic, partition=partition.number))
        except (KafkaError, OSError, TimeoutError) as error:
            stopped = f"restore of {partition}: {reason(error)}"
            raise LogUnavailable(f"{stopped}; the log is incomplete, restore under another prefix") from error
        if sent.offset != batch[0].offset:
            raise FatalError(f"restore of {partition}: record {batch[0].offset} was written at offset {sent.offset}")
        count += len(batch)
    return count


def _batches(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    return bounded_batches(records, _size_of, items_max=_BATCH_RECORDS, bytes_max=_BATCH_BYTES)


def _size_of(record: Record) -> int:
    return len(record.key) + len(record.value) + size_of(record.headers) + RECORD_BYTES * (1 + len(record.headers))
