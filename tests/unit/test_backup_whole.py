"""A log that is backed up and restored: every record is unchanged, and the new log names its origin."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import decode, encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import PermanentError
from eventstore.folding.origin import ensure_origin
from eventstore.log import CLIQUES, DECISIONS, FLEET, FLEET_0, INSTALLS, REPLICAS, ZONES, Partition, Record
from eventstore.recovery.backup import Manifest, check, copy, file_of, read_records, write_record
from eventstore.recovery.restore import plan_restore, restore_to_folder
from schemas.events import LogCreated, WritesFrozen
from tests.contract.engine import read_all
from tests.support.embedded import Clock
from tests.support.memory_log import Contents, MemoryLog
from tests.unit.test_backup import NOW_MS, ignore_progress, manifest_of

COUNT = 3
COPIED = [partition for topic in TOPICS.with_events for partition in TOPICS.partitions(topic, COUNT)]


async def backup(folder: Path) -> tuple[Contents, Manifest]:
    """A log with records in every partition and some expired reports, and the manifest of its copy."""
    contents = Contents(COUNT)
    log = MemoryLog(contents, lambda: NOW_MS)
    origin = await ensure_origin(log, "test", NOW_MS, random.Random(7))
    for topic in (ZONES, CLIQUES, FLEET, INSTALLS, DECISIONS, REPLICAS):
        for partition in TOPICS.partitions(topic, COUNT):
            for number in range(4 + partition.number):
                headers = (("traceparent", b"00-1"),) if number % 2 else ()
                contents.add(partition, NOW_MS + number, b"key", f"{partition} {number}".encode(), headers)
    for partition in TOPICS.partitions(INSTALLS, COUNT):
        del contents.records[partition][:2]
        contents.begins[partition] = 2
    copied = await copy(log, folder, ignore_progress)
    return contents, replace(manifest_of(origin, copied), partition_count=COUNT)


async def test_every_partition_except_the_beacons_is_copied(tmp_path: Path) -> None:
    contents, manifest = await backup(tmp_path)
    assert sorted(manifest.partitions) == sorted(map(str, COPIED))
    for partition in COPIED:
        assert [*read_records(file_of(tmp_path, partition))] == contents.records[partition], partition
    check(tmp_path, manifest, ignore_progress)


@pytest.mark.parametrize("partition", COPIED, ids=str)
async def test_a_copy_with_one_record_changed_is_damaged(tmp_path: Path, partition: Partition) -> None:
    _, manifest = await backup(tmp_path)
    records = [*read_records(file_of(tmp_path, partition))]
    with file_of(tmp_path, partition).open("wb") as file:
        for record in records:
            changed = record is records[-1]
            write_record(file, record._replace(timestamp_ms=record.timestamp_ms + 1) if changed else record)
    with pytest.raises(PermanentError, match=rf"{partition.topic}-{partition.number}\.records is damaged"):
        check(tmp_path, manifest, ignore_progress)


async def remade(folder: Path, manifest: Manifest, target: Path, *, frozen: bool) -> dict[Partition, list[Record]]:
    rng = random.Random(8)
    restoration = plan_restore(TOPICS, folder, manifest, generation=None, frozen=frozen, now_ms=NOW_MS - 1_000, rng=rng)
    restore_to_folder(restoration, target, ignore_progress)
    async with EmbeddedLog.open(TOPICS, target, partition_count=COUNT, now_ms=Clock()) as log:
        return {partition: await read_all(log, partition) for partition in COPIED}


@pytest.mark.parametrize("frozen", [False, True])
async def test_a_restored_log_has_every_record_after_a_record_of_its_origin(tmp_path: Path, frozen: bool) -> None:
    contents, manifest = await backup(tmp_path)
    found = await remade(tmp_path, manifest, tmp_path / "log", frozen=frozen)
    origins = set()
    for partition, records in found.items():
        before = contents.records[partition]
        if partition.topic in (INSTALLS, DECISIONS):
            assert [record[1:] for record in records] == [record[1:] for record in before]
            assert [record.offset for record in records] == [*range(len(before))]
            continue
        first = decode(records[0].value)
        assert isinstance(first, LogCreated)
        origins.add((first.log_id, first.generation, first.parent))
        assert records[0]._replace(value=b"") == before[0]._replace(value=b"")
        assert records[1 : len(before)] == before[1:], partition
        added = records[len(before) :]
        assert len(added) == (frozen and partition == FLEET_0)
        for record in added:
            assert isinstance(decode(record.value), WritesFrozen)
            assert record.timestamp_ms == before[-1].timestamp_ms, "the time of an added record is that of the last one"
    [(log_id, generation, parent)] = origins
    assert log_id != manifest.log_id and generation > manifest.generation
    assert parent.startswith(f"{manifest.generation}@{manifest.log_id}:")


async def test_a_generation_that_devices_have_had_is_refused(tmp_path: Path) -> None:
    _, manifest = await backup(tmp_path)
    for generation in (0, manifest.generation):
        least = manifest.generation + 1
        with pytest.raises(PermanentError, match=f"generation: {generation} must be at least {least}"):
            plan_restore(
                TOPICS, tmp_path, manifest, generation=generation, frozen=True, now_ms=NOW_MS, rng=random.Random(8)
            )
    for now_ms in (0, NOW_MS):
        made = plan_restore(
            TOPICS, tmp_path, manifest, generation=None, frozen=True, now_ms=now_ms, rng=random.Random(8)
        )
        assert made.origin.generation == max(manifest.generation + 1, now_ms)
    assert encode(made.origin)
