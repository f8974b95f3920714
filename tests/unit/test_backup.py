"""The cut of a backup through partitions that refer to each other and grow during the copy."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from msgspec.structs import replace

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.embedded.rocks import Rocks, RocksError
from eventstore.errors import FatalError, LogMismatch
from eventstore.folding.origin import ensure_origin
from eventstore.kafka.clients import BATCH_BYTES
from eventstore.log import FLEET_0, ZONES, Partition, Record
from eventstore.recovery.backup import Manifest, PartitionCopy, copy, file_of, partition_named, read_records
from eventstore.recovery.restore import _batches, plan_restore, restore_to_folder
from schemas.events import LogCreated
from tests.support.memory_log import Contents, MemoryLog
from tests.support.samples import sample

ZONES_0 = Partition(ZONES, 0)
NOW_MS = 1_700_000_000_000


class GrowingLog(MemoryLog):
    """A log that grows with each lookup of the end of fleet: by a join, its forward, and then an acknowledgement."""

    async def end(self, partition: Partition) -> int:
        if partition == FLEET_0:
            self.contents.add(ZONES_0, NOW_MS, b"z", encode(sample("NodesJoined")))
            taken = replace(
                sample("MembershipChanged"), cause_partition=0, from_offset=0, to_offset=self.contents.end(ZONES_0)
            )
            self.contents.add(FLEET_0, NOW_MS, b"", encode(taken))
            ended = await super().end(partition)
            self.contents.add(ZONES_0, NOW_MS, b"z", encode(sample("OutboxAcknowledged")))
            return ended
        return await super().end(partition)


def manifest_of(origin: LogCreated, copied: dict[str, PartitionCopy]) -> Manifest:
    return Manifest(
        format=1,
        log_id=origin.log_id,
        generation=origin.generation,
        parent=origin.parent,
        partition_count=1,
        made_at_ms=NOW_MS,
        partitions=copied,
    )


def ignore_progress(_what: str, _share: float) -> None:
    """Ignore a progress report."""


async def test_zones_are_copied_exactly_up_to_the_marks_of_fleet(tmp_path: Path) -> None:
    contents = Contents(1)
    await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    copied = await copy(GrowingLog(contents, lambda: NOW_MS), tmp_path, ignore_progress)
    assert (copied["fleet/0"].end, copied["zones/0"].end) == (2, 2)
    assert contents.end(ZONES_0) == 3, "the acknowledgement lies after the cut"
    assert [record.offset for record in read_records(file_of(tmp_path, ZONES_0))] == [0, 1]


async def test_a_forward_refused_by_fleet_does_not_move_the_cut(tmp_path: Path) -> None:
    contents = Contents(1)
    await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    for number in range(3):
        contents.add(ZONES_0, NOW_MS + number, b"z", encode(sample("NodesJoined")))
    forged = replace(sample("MembershipChanged"), cause_partition=0, from_offset=9, to_offset=1_000)
    contents.add(FLEET_0, NOW_MS, b"", encode(forged))
    contents.add(FLEET_0, NOW_MS, b"", b"no event")
    copied = await copy(MemoryLog(contents, lambda: NOW_MS), tmp_path, ignore_progress)
    assert (copied["fleet/0"].end, copied["zones/0"].end) == (3, 4)


async def test_a_forged_mark_ahead_of_its_zone_does_not_block_the_copy(tmp_path: Path) -> None:
    contents = Contents(1)
    await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    forged = replace(sample("MembershipChanged"), cause_partition=0, from_offset=0, to_offset=1_000)
    contents.add(FLEET_0, NOW_MS, b"", encode(forged))
    async with asyncio.timeout(60):
        copied = await copy(MemoryLog(contents, lambda: NOW_MS), tmp_path, ignore_progress)
    assert (copied["fleet/0"].end, copied["zones/0"].end) == (2, 1)


async def test_a_copy_is_synced_before_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        sync(file)

    contents = Contents(1)
    await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    monkeypatch.setattr(os, "fsync", noted)
    copied = await copy(MemoryLog(contents, lambda: NOW_MS), tmp_path, ignore_progress)
    assert sorted(synced) == sorted(str(file_of(tmp_path, partition_named(name))) for name in copied)


async def test_a_log_that_lost_its_first_records_is_refused(tmp_path: Path) -> None:
    contents = Contents(1)
    await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    contents.add(ZONES_0, NOW_MS, b"z", encode(sample("NodesJoined")))
    del contents.records[ZONES_0][0]
    contents.begins[ZONES_0] = 1
    with pytest.raises(LogMismatch, match="zones/0 begins at offset 1: its first records are gone"):
        await copy(MemoryLog(contents, lambda: NOW_MS), tmp_path, ignore_progress)


async def test_a_restored_log_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, folder, target = Contents(1), tmp_path / "backup", tmp_path / "log"
    folder.mkdir()
    origin = await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    contents.add(ZONES_0, NOW_MS, b"z", encode(sample("NodesJoined")))
    copied = await copy(MemoryLog(contents, lambda: NOW_MS), folder, ignore_progress)
    manifest = manifest_of(origin, copied)
    done: list[tuple[str, bool]] = []
    for name in ("write", "sync"):
        real = getattr(Rocks, name)

        def noted(rocks: Rocks, *rows: object, name: str = name, real: Callable[..., None] = real) -> None:
            done.append((name, target.exists()))
            real(rocks, *rows)

        monkeypatch.setattr(Rocks, name, noted)
    rng = random.Random(8)
    restoration = plan_restore(TOPICS, folder, manifest, generation=None, frozen=False, now_ms=NOW_MS, rng=rng)
    restore_to_folder(restoration, target, ignore_progress)
    assert ("write", False) in done
    assert done[-1] == ("sync", False)
    assert target.exists()


async def test_records_with_large_headers_are_restored_in_batches_within_the_broker_limit() -> None:
    large = Record(1, NOW_MS, b"k", b"v", (("trace", bytes(600_000)),))
    many = [Record(number, NOW_MS, b"", b"", tuple(("h", b"") for _ in range(500))) for number in range(500)]
    for batch in _batches([large, large._replace(offset=2), *many]):
        builder = BatchBuilder(BATCH_BYTES, 0)
        for record in batch:
            headers = list(record.headers)
            assert builder.append(timestamp=NOW_MS, key=record.key, value=record.value, headers=headers) is not None


async def test_a_restore_to_a_full_disk_fails_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(rocks: Rocks, rows: object) -> None:
        raise RocksError("No space left on device")

    contents, folder, target = Contents(1), tmp_path / "backup", tmp_path / "log"
    folder.mkdir()
    origin = await ensure_origin(MemoryLog(contents, lambda: NOW_MS), "test", NOW_MS, random.Random(7))
    copied = await copy(MemoryLog(contents, lambda: NOW_MS), folder, ignore_progress)
    rng = random.Random(8)
    restoration = plan_restore(
        TOPICS, folder, manifest_of(origin, copied), generation=None, frozen=False, now_ms=NOW_MS, rng=rng
    )
    monkeypatch.setattr(Rocks, "write", full)
    with pytest.raises(FatalError, match=f"{target} cannot be created: No space left"):
        restore_to_folder(restoration, target, ignore_progress)
    assert not target.exists()
